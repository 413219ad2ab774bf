"""A grammar that leaves words free and holds calls: what it admits, and in which field it goes upstream."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.answering.call_policy import CallPolicy
from emulator.answering.grammar.fields import lazy_grammar
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.gbnf import admits
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL, function

TOOLSET = Toolset.parse([GET_WEATHER, SEND_MAIL])
CALL = 'get_weather(location="Oslo")'


def block(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


@pytest.mark.parametrize(
    ("text", "is_admitted"),
    [
        ("It is warm in Oslo.", True),
        ("", True),
        ("One\n\n* two `three`\n`` x", True),
        ("```js\nconst w = get_weather(1)\nshow(w)\n```\nThat is code.", True),
        ("```js\nget_weather(1)\n```\nThat is code.", False),  # read as a call
        ('{"weather": "warm"}', True),
        ("It is 3 < 4, <b>bold</b>, a[0] and f(x).", True),
        ("Note: e.g. this (and that)", True),
        ("get_weather(town=1)", False),
        ("  - list\n  get_weather(town=1)", False),
        ("[get_weather(town=1)]", False),
        ("x = get_weather(town=1)", False),
        ("Now <tool_call>get_weather</tool_call>", False),
        ("Now <|python_tag|>get_weather()", False),
        ("~~~python\nget_weather()", False),
        (block(CALL), True),
        (f"I look.\n\n{block(CALL, CALL)}", True),
        (f"```js\nx\n```\n{block(CALL)}", True),
        (block('send_mail(to="a", body="b")'), True),
        (block('get_weather(town="Oslo")'), False),
        (block("get_weather()"), False),
        (block("launch_rocket()"), False),
        (block("import os", CALL), False),
        (block(), False),
        ("```python\n" + CALL, False),
        (block(CALL) + "\nIt is 12 degrees.", False),
        ("```py\nos.remove()\n```", False),
    ],
)
def test_words_are_free_until_a_block_opens(text: str, is_admitted: bool) -> None:
    assert admits(lazy_grammar(TOOLSET, CallPolicy()), text) is is_admitted


@pytest.mark.parametrize(
    ("choice", "text", "is_admitted"),
    [
        (CallPolicy(required=True), "It is warm.", False),
        (CallPolicy(required=True), f"Well.\n{block(CALL)}", True),
        (CallPolicy(required=True, name="send_mail"), block(CALL), False),
        (CallPolicy(one_at_a_time=True), block(CALL, CALL), False),
        (CallPolicy(one_at_a_time=True), block(CALL), True),
    ],
)
def test_the_tool_choice_holds_in_the_grammar(
    choice: CallPolicy, text: str, is_admitted: bool
) -> None:
    assert admits(lazy_grammar(TOOLSET, choice), text) is is_admitted


def sent_with(
    start_proxy: StartProxy, upstream: ScriptedUpstream, field: str, reply: str, **fields: Any
) -> tuple[dict[str, Any], Any]:
    profile = {"name": "held", "pattern": "^m$", "grammar": field}
    proxy = start_proxy(profiles=(profile,))
    upstream.reply(reply)
    tools = [GET_WEATHER, function("nest", {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    })]  # fmt: skip
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools, **fields}
    _, _, answer = send(f"{proxy}/v1/chat/completions", body)
    return upstream.requests[0], answer["choices"][0]


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("grammar", ["grammar"]),
        ("guided_grammar", ["guided_grammar"]),
        ("ebnf", ["ebnf"]),
        ("structured_outputs", ["structured_outputs", "grammar"]),
        ("structural_tag", ["response_format", "format", "tags", 0, "content", "grammar"]),
    ],
)
def test_each_upstream_gets_the_grammar_in_its_own_field(
    start_proxy: StartProxy, upstream: ScriptedUpstream, field: str, path: list[Any]
) -> None:
    sent, choice = sent_with(start_proxy, upstream, field, block(CALL))
    found: Any = sent
    for step in path:
        found = found[step]
    assert "get_weather(" in found
    assert choice["finish_reason"] == "tool_calls"


def test_without_a_grammar_a_required_call_is_held_to_a_schema(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    reply = '{"name": "get_weather", "arguments": {"location": "Oslo"}}'
    sent, choice = sent_with(start_proxy, upstream, "json_schema", reply, tool_choice="required")
    names = [
        one["properties"]["name"]["const"]
        for one in sent["response_format"]["json_schema"]["schema"]["anyOf"]
    ]
    assert names == ["get_weather", "nest"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"location":"Oslo"}'


@pytest.mark.parametrize("field", ["json_schema", "off"])
def test_words_are_never_held_where_only_all_of_an_answer_can_be(
    start_proxy: StartProxy, upstream: ScriptedUpstream, field: str
) -> None:
    sent, _ = sent_with(start_proxy, upstream, field, "It is warm.")
    assert not {"response_format", "grammar"} & sent.keys()
