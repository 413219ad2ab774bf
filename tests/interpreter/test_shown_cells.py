"""Which Python blocks are cells of the code interpreter (`Judge.decide_cell`): real kernels, over chat."""

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

INTERPRETER: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
TOOLS: Any = [INTERPRETER, function("delete_file", strings("path"), "Delete a file.")]
DELETE = 'delete_file(path="a.txt")'
DELETED = [("delete_file", {"path": "a.txt"})]
GO: Any = [{"role": "user", "content": "Go."}]


@BOTH
@pytest.mark.parametrize("tools", [TOOLS, [INTERPRETER]], ids=["a tool that acts", "alone"])
def test_the_python_of_a_model_that_does_not_label_is_a_cell(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, tools: Any
) -> None:
    upstream.reply("You would compute it so:\n\n```python\nprint(6 * 7)\n```\n\nFine?", "It is 42.")
    completion = ask(client, model="m", messages=GO, tools=tools)
    assert completion.choices[0].message.content.endswith("It is 42.")
    assert "42" in upstream.requests[1]["messages"][-1]["content"]


@BOTH
@pytest.mark.parametrize(
    ("answer", "made"),
    [("NO", []), ("RUN", DELETED), (f"```tool_code\n{DELETE}\n```", DELETED)],
)
@pytest.mark.parametrize("label", ["python", ""])
def test_a_cell_that_calls_an_acting_function_causes_a_question(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, label: str, answer: str, made: Any
) -> None:
    reply = f"Here it is.\n\n```{label}\n{DELETE}\n```\n\nShould I run it?"
    upstream.reply(reply, answer)
    completion = ask(client, model="m", messages=GO, tools=TOOLS)
    assert calls(completion) == made
    if not made:
        assert completion.choices[0].message.content == reply
    assert "Answer RUN" in upstream.requests[1]["messages"][-1]["content"]


@BOTH
def test_a_labelled_cell_that_acts_runs_without_a_question(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(f"For example:\n\n```tool_code\n{DELETE}\n```\n\nShould I run it?")
    assert calls(ask(client, model="m", messages=GO, tools=TOOLS)) == DELETED
    assert len(upstream.requests) == 1


JSON_CALL = '```json\n{"name": "%s", "arguments": {"path": "a.txt"}}\n```'


@BOTH
def test_a_call_that_acts_before_a_cell_is_shown_and_the_cell_runs(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """It was lost: neither made nor shown."""
    upstream.reply(f"{JSON_CALL % 'delete_file'}\n\n{PYTHON}", "It is 42.")
    completion = ask(client, model="m", messages=GO, tools=TOOLS)
    assert calls(completion) == []
    content = completion.choices[0].message.content
    assert "delete_file" in content and content.endswith("It is 42.")
    assert "42" in upstream.requests[1]["messages"][-1]["content"]


@BOTH
def test_a_call_that_reads_before_a_cell_is_made_and_the_cell_waits_for_its_result(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """Both ran, and the model never saw what the cell printed."""
    reader = function("get_file", strings("path"), "Read a file.")
    tools = [INTERPRETER, {**reader, "annotations": {"readOnlyHint": True}}]
    upstream.reply(f"{JSON_CALL % 'get_file'}\n\n{PYTHON}")
    completion = ask(client, model="m", messages=GO, tools=tools)
    assert calls(completion) == [("get_file", {"path": "a.txt"})]
    assert len(upstream.requests) == 1


def test_no_cell_begins_after_a_call(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    """It was an item without an end."""
    tool = {"type": "function", "name": "get_file", "parameters": strings("path")}
    tool["annotations"] = {"readOnlyHint": True}
    upstream.reply(f"{JSON_CALL % 'get_file'}\n\n{PYTHON}")
    response = client.responses.create(model="m", input="Go.", tools=[INTERPRETER, tool])
    assert [item.type for item in response.output] == ["function_call"]


@BOTH
def test_two_cells_in_one_question_both_run(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """Only the last one ran."""
    other = DELETE.replace("a.txt", "b.txt")
    reply = f"First:\n\n```python\n{DELETE}\n```\n\nThen:\n\n```python\n{other}\n```"
    upstream.reply(reply, "RUN")
    completion = ask(client, model="m", messages=GO, tools=TOOLS)
    assert calls(completion) == DELETED
    message = completion.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "done"}
    later = ask(client, model="m", messages=[*GO, message, result], tools=TOOLS)
    assert calls(later) == [("delete_file", {"path": "b.txt"})]
    asked = upstream.requests[1]["messages"][-1]["content"]
    assert DELETE in asked and other in asked


LABELLED = "```tool_code\nprint(1)\n```"
PYTHON = "```python\nprint(6 * 7)\n```"


@BOTH
def test_the_python_of_a_model_that_labels_is_shown_if_words_follow_it(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    reply = f"Save this:\n\n{PYTHON}\n\nThen start it."
    upstream.reply(LABELLED, reply)
    completion = ask(client, model="m", messages=GO, tools=[INTERPRETER])
    assert completion.choices[0].message.content == reply
    assert len(upstream.requests) == 2


@BOTH
@pytest.mark.parametrize(("answer", "runs"), [("RUN", True), ("NO", False)])
def test_unlabelled_python_at_the_end_of_a_labelling_models_reply_causes_a_question(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, answer: str, runs: bool
) -> None:
    reply = f"Let me see.\n\n{PYTHON}"
    upstream.reply(LABELLED, reply, answer, *["It is 42."] * runs)
    completion = ask(client, model="m", messages=GO, tools=[INTERPRETER])
    content = completion.choices[0].message.content
    assert content.endswith("It is 42.") if runs else content == reply
    assert len(upstream.requests) == 3 + runs
