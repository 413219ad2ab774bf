"""A model that is asked what it did quotes its own call, which must not be made again."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from sandbox.fences import probes
from tests.support.agents import converse
from tests.support.programs import INTERPRETER
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("send_mail", strings("to"), "Send a mail."),
    function("get_weather", strings("city"), "Get the weather of a city."),
]
LOCAL = {"send_mail": lambda to: f"sent to {to}", "get_weather": lambda city: "sunny"}
MAIL = "done = send_mail('ann')\nprint(done)"
WEATHER = "print(get_weather('Oslo'))"

# title, the first call, the user's next words, the words before the next block, its code, whether
# the model is asked about it
CASES = [
    ("a heading", MAIL, "Explain what you did.", "The last block was:", MAIL, True),
    ("a report", MAIL, "Tell me what you did.", "Here is what I did:", MAIL, True),
    ("other syntax", MAIL, "Explain.", "The call was:", 'send_mail(to="ann")', True),
    ("a report with a verb", MAIL, "Explain.", "I sent it with:", MAIL, True),
    ("no words", MAIL, "Once more.", "", MAIL, False),
    ("an announcement", MAIL, "Once more.", "I'll send it again:", MAIL, False),
    ("another call", MAIL, "Now to Bob.", "Sure, to Bob:", "print(send_mail('bob'))", False),
    ("a reading tool", WEATHER, "And now?", "The weather:", WEATHER, False),
]
_PROBLEM = probes.problem()
SETTINGS = [
    pytest.param(TOOLS, id="programs"),
    pytest.param(
        [*TOOLS, INTERPRETER],
        id="cells",
        marks=pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox: {_PROBLEM}"),
    ),
]


@pytest.mark.parametrize("tools", SETTINGS)
@pytest.mark.parametrize("case", CASES, ids=[row[0] for row in CASES])
def test_a_call_that_was_made_before_is_not_made_again_for_words_that_do_not_announce_it(
    client: openai.OpenAI, upstream: ScriptedUpstream, case: Any, tools: list[Any]
) -> None:
    _, first, request, words, code, is_asked = case
    block = f"```python\n{code}\n```"
    upstream.reply(f"```python\n{first}\n```", "Done.", f"{words}\n\n{block}", "NO")
    messages = converse(client, ["Go.", request], tools=tools, local=LOCAL)
    calls = sum(len(message.get("tool_calls", ())) for message in messages)
    assert calls == (1 if is_asked else 2)
    if is_asked:
        assert block in messages[-1]["content"]


@pytest.mark.parametrize("tools", SETTINGS)
def test_a_call_that_the_model_confirms_is_made_again(
    client: openai.OpenAI, upstream: ScriptedUpstream, tools: list[Any]
) -> None:
    block = f"```python\n{MAIL}\n```"
    upstream.reply(block, "Done.", f"Sure.\n\n{block}", block, "Done again.")
    messages = converse(client, ["Go.", "Once more."], tools=tools, local=LOCAL)
    assert sum(len(message.get("tool_calls", ())) for message in messages) == 2
    assert messages[-1]["content"] == "Done again."
