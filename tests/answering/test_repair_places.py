"""A repair shows the model its own lines with a caret, and no Python that it did not write."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [function("search", strings("query"))]
RIGHT = '```python\nsearch(query="a")\n```'

_CALL = '{"name": "search", "arguments": {"query": %s}}'
_CALLS = ", ".join(_CALL % query for query in ('"a"', "[1]"))

#: A reply with a fault -> the line and the caret that the model is shown.
FAULTS = {
    "JSON": (
        '{"name": "search", "arguments": {"words": "a"}}',
        '1 | {"name": "search", "arguments": {"words": "a"}}\n  |                                   ^',
    ),
    "JSON in an element": (
        '<tool_call>\n{"name": "search",\n "arguments": {"query": [1]}}\n</tool_call>',
        '3 |  "arguments": {"query": [1]}}\n  |                 ^',
    ),
    "elements": (
        "<function=search>\n<parameter=words>\na\n</parameter>\n</function>",
        "2 | <parameter=words>\n  |            ^",
    ),
    "the second of two": (
        '[{"name": "search", "arguments": {"query": "a"}},\n {"name": "search", "arguments": {"words": 1}}]',
        '2 |  {"name": "search", "arguments": {"words": 1}}]\n  |                                    ^',
    ),
    "one of two that are alike": (
        f"[{_CALLS}]",
        f"1 | [{_CALLS}]",
    ),
    "Python": ("```python\nsearch(words=1)\n```", "1 | search(words=1)"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_shown_at_its_place_in_the_models_own_syntax(
    client: openai.OpenAI, upstream: ScriptedUpstream, case: str
) -> None:
    reply, shown = FAULTS[case]
    upstream.reply(reply, RIGHT)
    messages: Any = [{"role": "user", "content": "Look it up."}]
    client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    told = upstream.requests[1]["messages"][-1]["content"]
    assert shown in told
    assert "**{" not in told
