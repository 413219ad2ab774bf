"""Calls in forms that no format prescribes and models write anyway: each is read in one turn."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.chat import calls
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("delete_file", strings("path"), "Delete a file."),
    function("write_file", strings("path", "content"), "Write a file."),
]
DELETED = [("delete_file", {"path": "a.txt"})]
PARAMETER = "<parameter=path>\na.txt\n</parameter>"
OBJECT = '{"path": "a.txt"}'


def tagged(content: str) -> str:
    """A call whose content is written as it is."""
    arguments = f'{{"path": "a", "content": "{content}"}}'
    return f'<tool_call>\n{{"name": "write_file", "arguments": {arguments}}}\n</tool_call>'


def written(content: str) -> list[tuple[str, Any]]:
    return [("write_file", {"path": "a", "content": content})]


CASES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "a function that nothing closes": (f"<function=delete_file>\n{PARAMETER}", DELETED),
    "a tag that nothing closes either": (
        f"<tool_call>\n<function=delete_file>\n{PARAMETER}\n",
        DELETED,
    ),
    "a fence labelled with the name": (f"```delete_file\n{OBJECT}\n```", DELETED),
    "a fence of JavaScript": (
        '```javascript\n{name: "delete_file", arguments: {path: "a.txt"}}\n```',
        DELETED,
    ),
    "a line break in a JSON string": (
        tagged("1\n2"),
        written("1\n2"),
    ),
    "an opening tag in a JSON string": (
        tagged("<tool_call>"),
        written("<tool_call>"),
    ),
    "a closing tag in a JSON string": (
        tagged("</tool_call>"),
        written("</tool_call>"),
    ),
    "a tag in a parameter": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
        "<tool_call>\n</parameter>\n</function>\n</tool_call>",
        written("<tool_call>"),
    ),
    "a tag in a program": (
        "```tool_code\nwrite_file(path='a', content='<tool_call>')\n```",
        written("<tool_call>"),
    ),
    "thoughts without an opening tag": (
        f"I think.\n</think>\n\n```delete_file\n{OBJECT}\n```",
        DELETED,
    ),
    "a draft in such thoughts": (
        "Perhaps\n```tool_code\ndelete_file('b')\n```\nNo.\n</think>\n\n"
        "```tool_code\ndelete_file('a.txt')\n```",
        DELETED,
    ),
}


@pytest.mark.parametrize("chunks", [None, 1, 7])
@pytest.mark.parametrize("case", CASES)
def test_a_call_in_an_odd_format_is_read_in_one_turn(
    client: openai.OpenAI, upstream: ScriptedUpstream, case: str, chunks: int | None
) -> None:
    text, expected = CASES[case]
    upstream.reply(Reply(text, chunks=chunks))
    messages: Any = [{"role": "user", "content": "Go."}]
    # Of a name that says nothing the proxy does not know yet that its replies start with thoughts.
    model = "qwq" if "thoughts" in case else "m"
    completion = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    assert calls(completion) == expected


@pytest.mark.parametrize("closed", [False, True])
def test_a_truncated_function_element_is_not_called(
    client: openai.OpenAI, upstream: ScriptedUpstream, closed: bool
) -> None:
    """By the length limit: further parameters may have followed."""
    text = f"<function=delete_file>\n{PARAMETER if closed else '<parameter=path>'}"
    upstream.default = Reply(text, finish_reason="length")
    messages: Any = [{"role": "user", "content": "Go."}]
    completion = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert calls(completion) == []
    assert completion.choices[0].finish_reason == "length"
