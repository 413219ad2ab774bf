"""Where a request's choice leaves one function, the JSON object of its arguments is its call: the structured
output of LangChain, Instructor and the AI SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle, groupby, pairwise
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from emulator.reading.splitter import Splitter
from emulator.reading.tool_names import ToolNames
from tests.conftest import StartProxy
from tests.support.chat import ASK, BOTH, calls
from tests.support.formats import FORMATS, VARIANTS, reply
from tests.support.raw_http import send
from tests.support.replies import same_calls
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import Api
from tests.support.three_apis import ask as ask_api
from tests.support.tools import CREATE_EVENT, GET_WEATHER, SEND_MAIL, function, strings

OSLO = {"location": "Oslo"}
IS_OSLO = [("get_weather", OSLO)]
JSON_TYPES = {str: "string", int: "integer", dict: "object", list: "array"}
FREE: dict[str, Any] = {"type": "object"}
STEPS = [
    {"name": "book_flight", "arguments": {"to": "Oslo"}},
    {"name": "plan", "arguments": {"steps": []}},
]


def with_parameters(called: str, /, **properties: Any) -> Any:
    return function(
        called, {"type": "object", "properties": properties, "required": list(properties)}
    )


NODE = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
    },
    "required": ["label"],
}
TREE = function(
    "save_tree",
    {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "$defs": {"node": NODE},
    },
)
LIST = {"type": "array", "items": FREE}
ARGUMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "one parameter": (GET_WEATHER, OSLO),
    "nested objects": (
        CREATE_EVENT,
        {"title": "Tea", "place": {"city": "Oslo"}, "guests": [{"name": "Ada", "age": 36}]},
    ),
    "definitions": (TREE, {"root": {"label": "a", "children": [{"label": "b"}]}}),
    "an array of objects": (
        with_parameters("save_people", people=LIST),
        {"people": [{"name": "Ada"}, {"name": "Bob", "arguments": {"x": 1}}]},
    ),
    "parameters named as the parts of a call": (
        with_parameters("register", name={"type": "string"}, arguments=FREE),
        {"name": "Ada", "arguments": {"x": 1}},
    ),
    "a name that no function can have": (
        with_parameters("register", name={"type": "string"}, input={"type": "string"}),
        {"name": "Ada of register", "input": "x"},
    ),
    "a value that is the function's name": (
        with_parameters("search", action={"type": "string"}, input={"type": "string"}),
        {"action": "search", "input": "x"},
    ),
    "a parameter named as the function": (
        with_parameters("place", place={"type": "object", "required": ["city"]}),
        {"place": {"city": "Oslo"}},
    ),
    "steps that look like calls": (with_parameters("plan", steps=LIST), {"steps": STEPS}),
    "a list named calls": (with_parameters("plan", calls=LIST), {"calls": STEPS}),
    "markup in a text": (
        with_parameters("save_page", text={"type": "string"}, more={"type": "string"}),
        {
            "text": 'It\'s <tool_call>{"name": "save_page"}</tool_call></s>, <b>"ok"</b>',
            "more": "}",
        },
    ),
    "a long text": (
        with_parameters("save_page", text={"type": "string"}),
        {"text": "Lorem ipsum {dolor} [sit] ```amet``` " * 30},
    ),
    "any object": (
        function("store", {**FREE, "additionalProperties": True}),
        {"a": 1, "b": [True, None, 1.5]},
    ),
    "none": (function("get_time", strings()), {}),
}
#: How a model writes an object.
WAYS: dict[str, Callable[[str, Any], str]] = {
    "bare": lambda text, _: text,
    "in a line": lambda _, value: json.dumps(value),
    "a fence of JSON": lambda text, _: f"```json\n{text}\n```",
    "a fence without a label": lambda text, _: f"```\n{text}\n```",
    "a fence of Python": lambda _, value: f"```python\n{value!r}\n```",
    "an assignment": lambda text, _: f"result = {text}",
    "an assignment in Python": lambda _, value: f"```python\nresult = {value!r}\n```",
    "words around it": lambda text, _: f"Here is the result [as JSON]:\n\n{text}\n\nThat is all.",
    "words around a fence": lambda text, _: f"For example:\n```json\n{text}\n```\nIs that ok?",
    "a sentence": lambda _, value: f"The result is {json.dumps(value)}.",
    "after reasoning": lambda text, _: f'<think>\n{{"location": "Paris"}}?\n</think>\n\n{text}',
}


def forced(tool: Any) -> Any:
    return {"type": "function", "function": {"name": tool["function"]["name"]}}


@BOTH
@pytest.mark.parametrize(("tool", "arguments"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_object_of_its_arguments_calls_the_forced_function(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, tool: Any, arguments: Any
) -> None:
    """Was a 502 after four turns."""
    text = json.dumps(arguments, indent=2)
    for (way, write), size in zip(WAYS.items(), cycle((None, 1, 3, 7)), strict=False):
        upstream.reply(Reply(write(text, arguments), chunks=size))
        completion = ask(
            client, model="m", messages=ASK, tools=[tool, SEND_MAIL], tool_choice=forced(tool)
        )
        assert calls(completion) == [(tool["function"]["name"], arguments)], way
        assert not completion.choices[0].message.content
    assert len(upstream.requests) == len(WAYS)


CHOICES: list[tuple[Api, dict[str, Any]]] = [
    ("chat", {"tool_choice": "required"}),
    ("chat", {"tool_choice": forced(GET_WEATHER)}),
    (
        "chat",
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [forced(GET_WEATHER)]},
            }
        },
    ),
    ("responses", {"tool_choice": "required"}),
    ("responses", {"tool_choice": {"type": "function", "name": "get_weather"}}),
    ("messages", {"tool_choice": {"type": "any"}}),
    ("messages", {"tool_choice": {"type": "tool", "name": "get_weather"}}),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "emulated": {},
    "constrained": {"profiles": ({"name": "c", "pattern": ".", "grammar": "json_schema"},)},
    "asked for JSON": {"profiles": ({"name": "c", "pattern": ".", "grammar": "prompt"},)},
    "tiny": {"profile": "tiny"},
    "native": {"tools": "native"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_api_and_each_way_of_calling_reads_the_object(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: dict[str, Any]
) -> None:
    proxy = start_proxy(**settings)
    written = [
        json.dumps(OSLO),
        f"Sure:\n```json\n{json.dumps(OSLO)}\n```",
        f"```python\nr = {OSLO}\n```",
    ]
    for api, choice in CHOICES:
        for stream in (False, True):
            for text in written:
                upstream.reply(Reply(text, chunks=5))
                outcome = ask_api(proxy, api, GET_WEATHER, stream=stream, **choice)
                assert outcome.calls == tuple(IS_OSLO), (api, choice, text)
                # Words of a native upstream pass as they arrive; it was not asked for Python.
                assert not outcome.text or (settings == SETTINGS["native"] and text != written[0])
    assert len(upstream.requests) == len(CHOICES) * 2 * len(written)


NAMED_CALLS = ("plain", "prose", "reasoning", "nested", "code", "tags")


@pytest.mark.parametrize("variant", NAMED_CALLS)
def test_a_call_in_a_format_that_models_are_trained_on_is_read_as_without_a_forced_choice(
    proxy: str, upstream: ScriptedUpstream, variant: str
) -> None:
    [(name, arguments)] = VARIANTS[variant]
    properties = {key: {"type": JSON_TYPES[type(value)]} for key, value in arguments.items()}
    tool = with_parameters(name, **properties)
    orders = [{"role": "user", "content": "Do it."}]
    body = {"model": "m", "messages": orders, "tools": [tool], "tool_choice": forced(tool)}
    for each in FORMATS:
        if variant not in each.unread:
            upstream.reply(reply(each, variant))
            _, _, answer = send(f"{proxy}/v1/chat/completions", body)
            [call] = answer["choices"][0]["message"]["tool_calls"]
            written = json.loads(call["function"]["arguments"])
            assert same_calls([(call["function"]["name"], written)], [(name, arguments)]), each.name


class Person(BaseModel):
    name: str
    pets: list[dict[str, str]]


ADA = Person(name="Ada", pets=[{"name": "Tim"}])


def test_the_official_clients_get_their_structured_output(
    proxy: str, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(*[Reply(f"```json\n{ADA.model_dump_json(indent=2)}\n```", chunks=4)] * 4)
    tool = openai.pydantic_function_tool(Person)
    completion = client.chat.completions.parse(
        model="m", messages=ASK, tools=[tool], tool_choice=forced(tool)
    )
    [call] = completion.choices[0].message.tool_calls or ()
    assert call.function.parsed_arguments == ADA
    response = client.responses.parse(
        model="m",
        input="?",
        tools=[{"type": "function", **tool["function"]}],
        tool_choice="required",
    )
    [item] = response.output
    assert item.type == "function_call" and json.loads(item.arguments) == ADA.model_dump()
    schema = Person.model_json_schema()
    request: Any = {
        "model": "m",
        "max_tokens": 99,
        "messages": ASK,
        "tools": [{"name": "Person", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "Person"},
    }
    with anthropic.Anthropic(base_url=proxy, api_key="k", max_retries=0) as other:
        plain = other.messages.create(**request)
        with other.messages.stream(**request) as events:
            streamed = events.get_final_message()
    for message in (plain, streamed):
        [block] = message.content
        assert block.type == "tool_use" and block.input == ADA.model_dump()


CORRECTED: dict[str, tuple[str, str]] = {
    "a wrong argument": ('{"town": "Oslo"}', 'unknown argument "town"'),
    "in a fence": ('```json\n{"location": "Oslo", "unit": "kelvin"}\n```', "unit"),
    "in Python": ('```python\nresult = {"location": 5, "x": 1}\n```', 'unknown argument "x"'),
    "broken JSON": ('{"location": "Oslo" "unit": 1}', "invalid JSON"),
    "the last of two": (json.dumps({"a": 1}) + "\nThat is:\n" + json.dumps({"b": 1}), '"b"'),
    "a misspelled function": (
        '{"name": "get_wether", "arguments": {"location": "Oslo"}}',
        'no function "get_wether"',
    ),
    "arguments of its call": ('{"name": "get_weather", "arguments": {"town": 1}}', '"town"'),
    "no object": ("It is warm in {Oslo}.", "That was not a function call"),
}


@BOTH
@pytest.mark.parametrize(("reply", "words"), CORRECTED.values(), ids=CORRECTED)
def test_a_repair_names_the_fault_of_the_object(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, reply: str, words: str
) -> None:
    upstream.reply(reply, json.dumps(OSLO))
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice="required")
    assert calls(completion) == IS_OSLO
    assert words in upstream.requests[1]["messages"][-1]["content"]
    assert len(upstream.requests) == 2


ONE_CALL: dict[str, str] = {
    "a call in JSON": '{"name": "get_weather", "arguments": {"location": "Oslo"}}',
    "a call in JSON without a part for arguments": '{"name": "get_weather", "location": "Oslo"}',
    "a call under its name": '{"get_weather": {"location": "Oslo"}}',
    "an object, then a call": (
        'The arguments are {"location": "Paris"}:\n```json\n{"location": "Paris"}\n```\n'
        '```python\nget_weather(location="Oslo")\n```'
    ),
    "an object next to a call in JSON": (
        '```json\n{"location": "Paris"}\n{"name": "get_weather", "arguments": {"location": "Oslo"}}\n```'
    ),
    "an object in a program": '```python\nr = {"location": "Oslo"}\nget_weather(**r)\n{"ok": True}\n```',
    "the last of several": '{"location": "<city>"}\n\n```json\n{"location": "Oslo"}\n```\n{"ok": 1}',
}


@BOTH
@pytest.mark.parametrize("reply", ONE_CALL.values(), ids=ONE_CALL)
def test_an_object_next_to_a_call_is_not_a_second_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, reply: str
) -> None:
    upstream.reply(reply)
    completion = ask(
        client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice=forced(GET_WEATHER)
    )
    assert calls(completion) == IS_OSLO
    assert len(upstream.requests) == 1


@BOTH
def test_with_tool_choice_none_an_object_is_an_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(json.dumps(OSLO))
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice="none")
    assert completion.choices[0].message.content == json.dumps(OSLO)


CUSTOM = {"type": "custom", "custom": {"name": "note", "description": "Take a note."}}


def test_an_object_is_no_text_for_a_custom_tool(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(*[json.dumps(OSLO)] * 2)
    with pytest.raises(openai.APIStatusError) as raised:
        client.with_options(max_retries=0).chat.completions.create(
            model="m", messages=ASK, tools=[CUSTOM], tool_choice="required"
        )
    assert raised.value.status_code == 502


@BOTH
def test_an_object_that_was_cut_off_is_continued(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(Reply('{"location": "Os', finish_reason="length"), 'lo"}')
    completion = ask(
        client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice=forced(GET_WEATHER)
    )
    assert calls(completion) == IS_OSLO


@BOTH
def test_an_object_that_the_user_wrote_counts_as_the_models_own_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(json.dumps(OSLO))
    messages = [{"role": "user", "content": f"Check this: {json.dumps(OSLO)}"}]
    completion = ask(
        client, model="m", messages=messages, tools=[GET_WEATHER], tool_choice="required"
    )
    assert calls(completion) == IS_OSLO
    assert len(upstream.requests) == 1


@BOTH
def test_words_next_to_a_native_call_are_sent_to_the_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, ask: Any
) -> None:
    proxy = start_proxy(tools="native")
    call = {"name": "get_weather", "arguments": OSLO}
    upstream.reply(Reply('It is {"location": "Paris"}.', tool_calls=[call]))
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0) as client:
        completion = ask(
            client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice="required"
        )
    assert calls(completion) == IS_OSLO
    assert completion.choices[0].message.content == 'It is {"location": "Paris"}.'


@given(
    arguments=st.sampled_from([arguments for _, arguments in ARGUMENTS.values()]),
    way=st.sampled_from([*WAYS.values()]),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
)
def test_an_object_is_read_the_same_however_the_reply_is_cut(
    arguments: Any, way: Callable[[str, Any], str], cuts: list[int]
) -> None:
    reply = way(json.dumps(arguments, indent=2), arguments)
    names = ToolNames(["get_weather", "plan", "save_page"], forced=True)

    def events(pieces: list[str]) -> list[tuple[type, str]]:
        splitter = Splitter(names)
        found = [event for piece in pieces for event in splitter.feed(piece)] + splitter.close()
        groups = [(kind, "".join(one.raw for one in group)) for kind, group in groupby(found, type)]
        assert "".join(raw for _, raw in groups) == reply
        return groups

    at = sorted({0, len(reply), *(cut % (len(reply) + 1) for cut in cuts)})
    pieces = [reply[one:two] for one, two in pairwise(at)]
    assert events(pieces) == events([*reply]) == events([reply])


MAIL = {"to": "a@b.c", "body": "Hi."}
SEVERAL = [GET_WEATHER, SEND_MAIL, CREATE_EVENT]
FITTING = {
    "an object": (json.dumps(MAIL), [("send_mail", MAIL)]),
    "a fence": (f"```json\n{json.dumps(MAIL)}\n```", [("send_mail", MAIL)]),
    "another tool's": (json.dumps(OSLO), IS_OSLO),
}


@BOTH
@pytest.mark.parametrize(("text", "expected"), FITTING.values(), ids=FITTING)
def test_an_object_is_the_call_of_the_only_function_that_accepts_it(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, text: str, expected: Any
) -> None:
    """It ended in a 502 after four turns."""
    upstream.reply(text)
    request: Any = {"messages": ASK, "tools": SEVERAL, "tool_choice": "required"}
    assert calls(ask(client, model="m", **request)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"note": "x"}',
        json.dumps([MAIL]),
        f"I would send {json.dumps(MAIL)}",
        f"{json.dumps(MAIL)} {OSLO}",
    ],
)
def test_an_object_that_is_not_alone_or_fits_no_function_is_no_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, text: str
) -> None:
    upstream.reply(text, "```tool_code\nget_weather(location='Oslo')\n```")
    request: Any = {"messages": ASK, "tools": SEVERAL, "tool_choice": "required"}
    assert calls(client.chat.completions.create(model="m", **request)) == IS_OSLO
    assert len(upstream.requests) == 2


def test_an_object_that_two_functions_accept_is_no_call(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(json.dumps(OSLO), "```tool_code\nget_weather(location='Oslo')\n```")
    tools = [GET_WEATHER, function("get_time", strings("location"))]
    request: Any = {"messages": ASK, "tools": tools, "tool_choice": "required"}
    assert calls(client.chat.completions.create(model="m", **request)) == IS_OSLO
    assert len(upstream.requests) == 2
