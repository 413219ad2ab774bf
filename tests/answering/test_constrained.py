"""Replies constrained to a JSON Schema: the field that each server gets, the schema, and the reply."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import llguidance
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from emulator.answering.ways.json_reply import ConstrainedSplitter
from emulator.answering.ways.schema import reply_schema
from emulator.conversation.call_policy import CallPolicy
from emulator.reading.events import Text, merge_events
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from emulator.settings.settings import Settings
from emulator.tools.toolset import BindError, SchemaError, Toolset
from emulator.upstream.servers import SERVERS
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL, function
from tests.tools import schema_rows
from tests.tools.schema_rows import one

ASK = [{"role": "user", "content": "Is it warm in Oslo?"}]
OSLO = '{"calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}'
CALLED = [("get_weather", {"location": "Oslo"})]
WARM = '{"say": "It is warm."}'


def row(field: str = "json_schema") -> dict[str, Any]:
    return {"profiles": ({"name": "constrained", "pattern": ".", "grammar": field},)}


def ask(proxy: str, **fields: Any) -> Any:
    body = {"model": "m", "messages": ASK, "tools": [GET_WEATHER, SEND_MAIL], **fields}
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["message"]


def calls(message: Any) -> list[tuple[str, Any]]:
    made = [call["function"] for call in message.get("tool_calls") or ()]
    return [(call["name"], json.loads(call["arguments"])) for call in made]


def schema_sent(body: Mapping[str, Any]) -> Any:
    kind, *_, schema = body["response_format"].values()
    return schema["schema"] if kind == "json_schema" else schema


# The request


@pytest.mark.parametrize("server", [s for s in SERVERS if s.schema_field != "off"], ids=str)
def test_each_kind_of_server_gets_the_field_that_it_enforces(
    start_proxy: StartProxy, upstream: ScriptedUpstream, server: Any
) -> None:
    upstream.reply(OSLO)
    assert calls(ask(start_proxy(**row(server.schema_field)))) == CALLED
    [sent] = upstream.requests
    kind = "json_object" if server.name == "llama-cpp-python" else "json_schema"
    assert sent["response_format"]["type"] == kind
    assert [*schema_sent(sent)] == ["anyOf"]
    assert not {"grammar", "json_schema", "format", "tools"} & sent.keys()


WEATHER, MAIL = "get_weather", "send_mail"


@pytest.mark.parametrize(
    ("fields", "ways", "names", "limit"),
    [
        ({}, ["say", "calls"], [WEATHER, MAIL], 32),
        ({"tool_choice": "auto"}, ["say", "calls"], [WEATHER, MAIL], 32),
        ({"tool_choice": "required"}, ["calls"], [WEATHER, MAIL], 32),
        ({"tool_choice": {"type": "function", "function": {"name": WEATHER}}},
         ["calls"], [WEATHER], 32),
        ({"parallel_tool_calls": False}, ["say", "calls"], [WEATHER, MAIL], 1),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "function", "function": {"name": MAIL}}]}}}, ["say", "calls"], [MAIL], 32),
    ],
)  # fmt: skip
def test_the_schema_follows_tool_choice(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    fields: dict[str, Any],
    ways: list[str],
    names: list[str],
    limit: int,
) -> None:
    upstream.reply(OSLO if WEATHER in names else WARM)
    ask(start_proxy(**row()), **fields)
    schema = schema_sent(upstream.requests[0])
    parts = schema.get("anyOf", [schema])
    assert [name for part in parts for name in part["properties"]] == ways
    listed = parts[-1]["properties"]["calls"]
    tools = listed["items"].get("anyOf", [listed["items"]])
    assert [tool["properties"]["name"]["const"] for tool in tools] == names
    assert listed["maxItems"] == limit


JSON_ANSWER = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, {}),
        (row("off"), {}),
        ({"grammar": False, **row()}, {}),
        (row(), {"tool_choice": "none"}),
        (row(), JSON_ANSWER),
    ],
)
def test_a_request_without_usable_tools_is_not_constrained(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Any, fields: Any
) -> None:
    upstream.reply('{"warm": true}')
    assert ask(start_proxy(**settings), **fields)["content"] in ('{"warm": true}', '{"warm":true}')
    assert "response_format" not in upstream.requests[0]


def test_a_required_call_is_constrained_also_with_an_answer_format(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(OSLO)
    assert calls(ask(start_proxy(**row()), tool_choice="required", **JSON_ANSWER)) == CALLED
    assert "say" not in json.dumps(schema_sent(upstream.requests[0]))


@pytest.mark.parametrize("field", ["grammar", "structured_outputs", "ebnf", "guided_grammar"])
def test_a_field_of_an_older_version_stops_the_start(field: str) -> None:
    with pytest.raises(ValidationError, match="'off', 'json_schema', 'json_object' or 'prompt'"):
        Settings(**row(field))
    with pytest.raises(ValidationError, match="'off', 'json_schema' or 'json_object'"):
        Settings(retry_grammar=field)


def test_the_prompt_alone_asks_for_the_same_json(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(**row("prompt"))
    upstream.reply(OSLO, '{"say": "It is warm."}', "It is warm.")
    message = ask(proxy)
    assert calls(message) == CALLED
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21"}
    for _ in range(2):
        assert ask(proxy, messages=[*ASK, message, result])["content"] == "It is warm."
    first, second, _ = upstream.requests
    assert "response_format" not in first
    assert '{"calls": [{"name": "...", "arguments": {...}}]}' in first["messages"][0]["content"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert json.loads(second["messages"][2]["content"]) == json.loads(OSLO)


def test_the_next_prompt_starts_with_the_last_one_and_shows_the_call_as_it_was_written(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(**row())
    upstream.reply(OSLO, WARM)
    message = ask(proxy)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21"}
    assert ask(proxy, messages=[*ASK, message, result])["content"] == "It is warm."
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first)] == first
    assert '{"say": "..."}' in first[0]["content"]
    assert second[len(first)] == {"role": "assistant", "content": OSLO}
    assert "21" in second[-1]["content"]


def test_an_invalid_call_is_requested_again_in_json(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(OSLO.replace("location", "town"), OSLO)
    assert calls(ask(start_proxy(**row()))) == CALLED
    repair = upstream.requests[1]["messages"][-1]["content"]
    assert "Write the whole corrected JSON object, and nothing else." in repair
    assert "Python" not in repair


@pytest.mark.parametrize("field", ["json_schema", "json_object"])
def test_a_repair_may_be_constrained(
    start_proxy: StartProxy, upstream: ScriptedUpstream, field: Any
) -> None:
    upstream.reply("```python\nget_weather(town='x')\n```", OSLO)
    assert calls(ask(start_proxy(retry_grammar=field))) == CALLED
    first, second = upstream.requests
    assert "response_format" not in first
    assert second["response_format"]["type"] == field
    assert [*schema_sent(second)["properties"]] == ["calls"]
    assert "corrected JSON object" in second["messages"][-1]["content"]


# The reply


@pytest.mark.parametrize(
    ("reply", "content", "made"),
    [
        (WARM, "It is warm.", []),
        (OSLO, None, CALLED),
        ('{\n "say" : "a \\"b\\"\\n\\u00e9 \\ud83d\\ude00"\n}\n', 'a "b"\né 😀', []),
        ('{"say": "Run ```python\\nget_weather(location=\'Oslo\')\\n```"}',
         "Run ```python\nget_weather(location='Oslo')\n```", []),
        ('{"say": "<tool_call>{\\"name\\": \\"get_weather\\"}</tool_call>"}',
         '<tool_call>{"name": "get_weather"}</tool_call>', []),
        ('{"say": "I look.", "calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}',
         "I look.", CALLED),
        ('<think>{"say": "no"}</think>\n{"say": "yes"}', "yes", []),
        ('```json\n{"say": "It is warm."}\n```\n', "It is warm.", []),
        ('```{"say": "It is warm."}```', "It is warm.", []),
        # A model that writes both members, because nothing enforces the schema.
        ('{"say": null, "calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}',
         None, CALLED),
        ('```json\n{ "say" :null,\n"calls":[{"name":"get_weather", "arguments": {"location": "Oslo"}}]}\n```',
         None, CALLED),
        ('{"calls": [], "say": "Hi."}', "Hi.", []),
        ('{"calls" : null , "say": "Hi."}', "Hi.", []),
        ('{"say": "Hi.", "calls": []}', "Hi.", []),
        ('```json\n{"say": "Hi.",\n "calls": null\n}\n```\n', "Hi.", []),
        ('{"say": null, "calls": null, "more": 1}', '{"say": null, "calls": null, "more": 1}', []),
        # A server that ignores the schema: the reply is read like any other.
        ('```json\n{"saying": "x"}\n```', '```json\n{"saying": "x"}\n```', []),
        ("It is warm.", "It is warm.", []),
        ('Such as {"say": "x"}', 'Such as {"say": "x"}', []),
        ('{"saying": "x"}', '{"saying": "x"}', []),
        ('```python\nget_weather(location="Oslo")\n```', None, CALLED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunks", [None, 1, 3])
def test_a_reply_is_words_or_calls_however_it_is_cut(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    reply: str,
    content: str | None,
    made: Any,
    chunks: int | None,
) -> None:
    upstream.reply(Reply(reply, chunks=chunks))
    message = ask(start_proxy(**row()))
    assert (message["content"], calls(message)) == (content, made)


def test_words_stream_as_they_arrive(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    words = 'It is "warm" in Oslo.'
    upstream.reply(Reply(json.dumps({"say": words}), chunks=4, delay=0.02))
    client = openai.OpenAI(base_url=f"{start_proxy(**row())}/v1", api_key="k")
    stream: Any = client.chat.completions.create(
        model="m", messages=ASK, tools=[GET_WEATHER], stream=True
    )
    deltas = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(deltas) == words
    assert len([*filter(None, deltas)]) > 4


def test_a_truncated_reply_shows_its_words_up_to_the_cut(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply('{"say": "It is wa\\', finish_reason="length"))
    assert ask(start_proxy(**row()))["content"] == "It is wa"


def read(reply: str, cuts: list[int]) -> Any:
    names = {"get_weather": "get_weather"}
    splitter = ConstrainedSplitter(ReplySplitter(names, ReasoningStart.OUTSIDE))
    places = [0, *sorted(cut % (len(reply) + 1) for cut in cuts), len(reply)]
    pieces = [reply[start:end] for start, end in pairwise(places)]
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return merge_events([*events, *splitter.close()])


@given(st.text(), st.booleans(), st.lists(st.integers(0, 10_000), max_size=8))
def test_words_are_read_back_unchanged_from_a_constrained_reply(
    words: str, ascii_only: bool, cuts: list[int]
) -> None:
    reply = json.dumps({"say": words}, ensure_ascii=ascii_only)
    assert read(reply, cuts) == ([Text(words)] if words else [])


@given(st.text('{}[]"\\, :sayclnu0d8</think>\n'), st.lists(st.integers(0, 10_000), max_size=8))
def test_cuts_change_nothing_in_a_hostile_reply(rest: str, cuts: list[int]) -> None:
    for reply in (rest, '{"say": "' + rest, f"</think>{rest}"):
        assert read(reply, cuts) == read(reply, [])


# The schema


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
ANYTHING = {"type": ["string", "number", "boolean", "object", "array", "null"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "description": "d", "default": "x", "format": "email"}, TEXT),
        (True, ANYTHING),
        ({"const": 3}, {"enum": [3]}),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9.5},
         {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "integer", "minimum": -1e300}, WHOLE),
        ({"type": "number", "multipleOf": 0.5, "maximum": 3}, {"type": "number", "maximum": 3}),
        ({"type": "string", "minLength": 2, "maxLength": 10**6}, {"type": "string", "minLength": 2}),
        ({"type": "string", "pattern": r"^\d{4}-[\dA-F]{2}$"},
         {"type": "string", "pattern": "^[0-9]{4}-[0-9A-F]{2}$"}),
        ({"type": "string", "pattern": "^(a|b)+$", "maxLength": 5},
         {"type": "string", "pattern": "^(a|b)+$"}),
        ({"type": "string", "minLength": 3.0}, {"type": "string", "minLength": 3}),
        ({"type": "number", "minimum": 1e300}, {"type": "number"}),
        # llama.cpp refuses these patterns, or compiles them to something else.
        *(({"type": "string", "pattern": pattern}, TEXT)
          for pattern in ("a", "^a|b$", "^.*$", "^[^a]$", r"^\w$", "^(?=a)b$", r"^\/$", "^é{2000}$")),
        ({"type": ["integer", "null"]}, {"anyOf": [WHOLE, {"type": "null"}]}),
        ({"oneOf": [TEXT, WHOLE]}, {"anyOf": [TEXT, WHOLE]}),
        ({"oneOf": [True, WHOLE]}, {"anyOf": [ANYTHING, WHOLE]}),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": {}},
         {"type": "object", "properties": {"a": TEXT}, "required": [],
          "additionalProperties": ANYTHING}),
        ({"type": "array", "items": TEXT, "uniqueItems": True, "maxItems": 5000},
         {"type": "array", "items": TEXT}),
        ({"type": "array"}, {"type": "array", "items": ANYTHING}),
        ({"type": "array", "prefixItems": [TEXT, WHOLE], "items": False},
         {"type": "array", "prefixItems": [TEXT, WHOLE], "minItems": 2, "maxItems": 2}),
        ({"type": "object", "additionalProperties": WHOLE, "minProperties": 1},
         {"type": "object", "additionalProperties": WHOLE}),
        ({"type": "object", "properties": {"a": TEXT, "b": False}, "required": ["a"]},
         {"type": "object", "properties": {"a": TEXT}, "required": ["a"],
          "additionalProperties": False}),
    ],
)  # fmt: skip
def test_a_value_is_written_with_the_keywords_that_every_server_compiles(
    schema: Any, expected: Any
) -> None:
    toolset = Toolset.parse([function("f", one(schema))])
    written = reply_schema(toolset.tools, CallPolicy(required=True))
    assert written is not None
    call = written["properties"]["calls"]["items"]["properties"]
    assert call["arguments"]["properties"] == {"x": expected}


def test_definitions_of_several_tools_do_not_mix() -> None:
    def tree(value: Any) -> Any:
        node = {"type": "object", "properties": {"v": value, "next": {"$ref": "#/$defs/a~1b"}}}
        return one({"$ref": "#/$defs/a~1b"}) | {"$defs": {"a/b": node}}

    toolset = Toolset.parse([function("f", tree(TEXT)), function("g", tree(WHOLE))])
    written = reply_schema(toolset.tools, CallPolicy())
    assert written is not None
    values = [found["properties"] for found in written["$defs"].values()]
    assert values == [
        {"v": TEXT, "next": {"$ref": "#/$defs/d0"}},
        {"v": WHOLE, "next": {"$ref": "#/$defs/d1"}},
    ]


def test_a_schema_that_no_server_would_compile_is_not_sent() -> None:
    words = [f"{n} {'word ' * 80}" for n in range(1000)]
    contradictions = [
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {"type": "number", "exclusiveMinimum": 5, "maximum": 5},
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"type": "array", "minItems": 5, "maxItems": 2},
    ]
    for schema in ({"enum": words}, False, *contradictions):
        toolset = Toolset.parse([function("f", one(schema))])
        assert reply_schema(toolset.tools, CallPolicy()) is None


COMPILED = frozenset(
    "type enum const anyOf $ref $defs properties required additionalProperties items prefixItems minItems"
    " maxItems minLength maxLength pattern minimum maximum exclusiveMinimum exclusiveMaximum".split()
)
NOT_SAID = {
    "allOf that contradicts itself": "nothing is valid",
    **dict.fromkeys(
        ("arguments of which one is needed", "arguments in alternatives", "if, then, else",
         "dependentRequired", "draft-07 dependencies by name", "draft-07 dependencies by schema"),
        "the members of an object are independent of one another",
    ),
    "contains": "items are independent",
    "minProperties": "so are the members of a dictionary",
    "not": "no server excludes values",
    "oneOf that fits twice": "alternatives overlap",
    "a pattern that backtracks forever": "the sample does not follow patterns",
    "pattern": "nor here",
}  # fmt: skip


def keywords(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for keyword, inside in schema.items():
        yield keyword
        match keyword, inside:
            case ("enum" | "const" | "required" | "type", _):
                parts = []
            case ("properties" | "$defs", dict(named)):
                parts = [*named.values()]
            case _:
                parts = inside if isinstance(inside, list) else [inside]
        for part in parts:
            yield from keywords(part)


def sample(schema: Any, root: Any, chance: random.Random, depth: int = 0) -> Any:
    """A random value that a schema allows."""
    match schema:
        case {"$ref": ref}:
            return sample(root["$defs"][ref.rpartition("/")[2]], root, chance, depth)
        case {"anyOf": parts}:
            return sample(
                chance.choice(parts[: 1 if depth > 12 else None]), root, chance, depth + 1
            )
        case {"enum": values}:
            return chance.choice(values)
        case {"const": value}:
            return value
        case {"type": list(kinds)}:
            return sample({"type": chance.choice(kinds)}, root, chance, depth)
        case {"type": "object", "properties": properties}:
            some = [n for n in properties if n in schema["required"] or chance.random() > depth / 4]
            return {name: sample(properties[name], root, chance, depth + 1) for name in some}
        case {"type": "array", "prefixItems": parts}:
            return [sample(part, root, chance, depth + 1) for part in parts]
        case {"type": "array", **others}:
            count = max(others.get("minItems", 0), 0 if depth > 3 else chance.randint(0, 2))
            items = others.get("items", TEXT)
            return [sample(items, root, chance, depth + 1) for _ in range(count)]
    low = schema.get("minimum", 0)
    values = {
        "string": "ab12"[: schema.get("maxLength")].ljust(schema.get("minLength", 0), "z"),
        "integer": min(low + chance.randint(0, 3), schema.get("maximum", low + 3)),
        "number": schema.get("maximum", low + 1.5),
        "boolean": chance.random() > 0.5,
        "null": None,
        "object": {},
    }
    return values[schema["type"]]


@pytest.mark.parametrize("case", schema_rows.ROWS, ids=lambda case: case[0])
def test_hostile_and_dated_schemas_become_schemas_that_servers_compile(
    case: schema_rows.Row,
) -> None:
    try:
        toolset = Toolset.parse([function("f", case[1])])
    except SchemaError:
        return
    written = reply_schema(toolset.tools, CallPolicy(required=True))
    if written is None:
        return
    assert {*keywords(written)} <= COMPILED
    if len(json.dumps(written)) < 20_000:
        compiled = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(written))
        assert not llguidance.LLMatcher.validate_grammar(compiled)
    if case[0] == "tuples that double at every step":
        return  # a sample would never end
    chance = random.Random(16)
    problems = []
    for _ in range(10):
        for call in sample(written, written, chance)["calls"]:
            try:
                toolset.bind(call["name"], [], call["arguments"])
            except BindError as error:
                problems.append(f"{call}: {error}")
    assert not problems or case[0] in NOT_SAID, problems
