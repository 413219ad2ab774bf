"""Code that is shown does not run in the interpreter either, and calls none of the client's functions.

Real kernels, a scripted model, over chat.
"""

from __future__ import annotations

from typing import Any

import openai
import pytest

from sandbox.fences import probes
from tests.support.chat import BOTH, calls
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

TOOLS: Any = [
    {"type": "code_interpreter", "container": {"type": "auto"}},
    function("delete_file", strings("path"), "Delete a file."),
]
DELETE = 'delete_file(path="a.txt")'
DELETED = [("delete_file", {"path": "a.txt"})]


@BOTH
@pytest.mark.parametrize(
    "reply",
    [
        f"For example, deleting looks like this:\n\n```tool_code\n{DELETE}\n```",
        f"For example, deleting looks like this:\n\n```\n{DELETE}\n```",
        "You would compute it like this:\n\n```tool_code\nfor i in range(3)\n    print(i\n```\n\nIt is wrong.",
        "Don't run this:\n\n```tool_code\nimport shutil\nshutil.rmtree('/mnt/data')\n```",
    ],
)
def test_a_cell_that_the_words_before_it_show_is_content(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, reply: str
) -> None:
    """Each ran, and the first two called the client's function."""
    upstream.reply(reply)
    completion = ask(client, model="m", messages=[{"role": "user", "content": "Go."}], tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == ([], reply)
    assert len(upstream.requests) == 1


@BOTH
@pytest.mark.parametrize("label", ["python", ""])
def test_a_cell_that_calls_a_tool_that_acts_waits_for_the_words_after_it(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, label: str
) -> None:
    reply = f"Here it is.\n\n```{label}\n{DELETE}\n```\n\nShould I run it?"
    upstream.reply(reply, f"```tool_code\n{DELETE}\n```")
    messages = [{"role": "user", "content": "Go."}]
    completion = ask(client, model="m", messages=messages, tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == ([], reply)
    assert calls(ask(client, model="m", messages=messages, tools=TOOLS)) == DELETED


@BOTH
@pytest.mark.parametrize(("answer", "made"), [("NO", []), (f"```tool_code\n{DELETE}\n```", DELETED)])
def test_about_a_doubtful_cell_the_model_is_asked_once(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, answer: str, made: Any
) -> None:
    reply = f"You can delete it with:\n\n```tool_code\n{DELETE}\n```"
    upstream.reply(reply, answer)
    completion = ask(client, model="m", messages=[{"role": "user", "content": "Go."}], tools=TOOLS)
    assert calls(completion) == made
    assert reply in str(completion.choices[0].message.content)
    assert "may be meant as an example" in upstream.requests[1]["messages"][-1]["content"]
