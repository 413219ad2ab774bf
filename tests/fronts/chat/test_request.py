"""What clients may ask for beyond plain tools: forms of the answer, several choices, stops, old shapes."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from emulator.reply.prose import StopFilter
from tests.conftest import StartProxy
from tests.support.chat import ASK, BOTH, LONDON, calls, plain
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "Out",
        "schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "temp": {"type": "integer"},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city", "temp"],
            "additionalProperties": False,
        },
    },
}

FORMED = [
    ("plain JSON", '{"city": "Oslo", "temp": 3}'),
    ("a fence with words around", 'Here you are:\n```json\n{"city": "Oslo", "temp": 3}\n```\nBye.'),
    ("a number as text, an enum in another case", '{"city": "Oslo", "temp": "3"}'),
    ("single quotes and a trailing comma", "{'city': 'Oslo', 'temp': 3,}"),
    (
        "words in brackets",
        'As asked [see above]:\n{"city": "Oslo", "temp": 3}\n{unit: none} {or so}',
    ),
    ("thinking first", '<think>{"city": "x"}</think>{"city": "Oslo", "temp": 3}'),
]


@BOTH
@pytest.mark.parametrize("tools", [None, [GET_WEATHER]], ids=["alone", "with tools"])
@pytest.mark.parametrize("reply", [row[1] for row in FORMED], ids=[row[0] for row in FORMED])
def test_an_answer_has_the_requested_format(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, reply: str, tools: Any
) -> None:
    upstream.reply(Reply(reply, chunks=5))
    extra = {"tools": tools} if tools else {}
    completion = ask(client, model="m", messages=ASK, response_format=SCHEMA, **extra)
    assert json.loads(completion.choices[0].message.content) == {"city": "Oslo", "temp": 3}
    assert completion.choices[0].finish_reason == "stop"
    assert "response_format" not in upstream.requests[0]
    assert '"additionalProperties": false' in upstream.requests[0]["messages"][0]["content"]


@BOTH
def test_an_answer_of_the_wrong_form_is_repaired(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply("It is cold.", '{"city": "Oslo"}', '{"city": "Oslo", "temp": 3}')
    completion = ask(client, model="m", messages=ASK, response_format=SCHEMA)
    assert completion.choices[0].message.content == '{"city":"Oslo","temp":3}'
    complaints = [request["messages"][-1]["content"] for request in upstream.requests[1:]]
    assert "no JSON object" in complaints[0]
    assert "temp" in complaints[1]


def test_an_answer_that_never_takes_the_form_is_an_honest_error(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(*["No."] * 4)
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model="m", messages=ASK, response_format=SCHEMA)
    assert (raised.value.status_code, raised.value.code) == (502, "model_format")


@BOTH
def test_a_tool_turn_need_not_take_the_form(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(LONDON)
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], response_format=SCHEMA)
    assert calls(completion) == [("get_weather", {"location": "London"})]


@BOTH
def test_json_mode_gives_a_json_object(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply('Sure!\n```json\n{"a": [1, 2]}\n```')
    completion = ask(client, model="m", messages=ASK, response_format={"type": "json_object"})
    assert completion.choices[0].message.content == '{"a":[1,2]}'


def test_the_sdk_parses_an_answer_into_a_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    class Weather(BaseModel):
        city: str
        temp: int

    upstream.reply('{"city": "Oslo", "temp": 3}')
    parsed = client.chat.completions.parse(model="m", messages=ASK, response_format=Weather)
    assert parsed.choices[0].message.parsed == Weather(city="Oslo", temp=3)


@BOTH
def test_several_choices_are_several_answers(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(LONDON, "Prose.", LONDON.replace("London", "Paris"))
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], n=3)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert [choice.finish_reason for choice in completion.choices] == [
        "tool_calls",
        "stop",
        "tool_calls",
    ]
    assert completion.choices[1].message.content == "Prose."


@BOTH
@pytest.mark.parametrize("chunks", [None, 1])
def test_the_clients_stop_strings_cut_prose_but_no_program(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, chunks: int | None
) -> None:
    stop = ["London", "Observation:"]
    upstream.reply(Reply(LONDON, chunks=chunks), Reply("It rains. Observation: x", chunks=chunks))
    first = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], stop=stop)
    second = ask(client, model="m", messages=ASK, tools=[GET_WEATHER], stop=stop)
    assert calls(first) == [("get_weather", {"location": "London"})]
    assert second.choices[0].message.content.strip() == "It rains."
    assert second.choices[0].finish_reason == "stop"
    assert "stop" not in upstream.requests[0]


@given(
    text=st.text("ab", max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=3), max_size=3),
    data=st.data(),
)
def test_a_stop_filter_gives_the_text_up_to_the_first_stop_however_it_is_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    filtered = StopFilter(stops)
    given_out, at = "", 0
    while at < len(text):
        size = data.draw(st.integers(1, len(text) - at))
        given_out += filtered.feed(text[at : at + size])
        at += size
    given_out += filtered.close()
    # The first to be complete wins; cut off is all from where it begins.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    if not ends:
        assert given_out == text
    else:
        assert filtered.stopped
        assert text.startswith(given_out) and not any(stop in given_out for stop in stops)


LEGACY: dict[str, Any] = {"functions": [GET_WEATHER["function"], SEND_MAIL["function"]]}


@pytest.mark.parametrize("stream", [False, True])
def test_functions_are_answered_in_their_old_shape(
    client: openai.OpenAI, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply("```python\nget_weather('London')\nget_weather('Paris')\n```")
    if stream:
        with client.chat.completions.stream(model="m", messages=ASK, **LEGACY) as events:
            completion: Any = events.get_final_completion()
    else:
        completion = client.chat.completions.create(model="m", messages=ASK, **LEGACY)
    choice = completion.choices[0]
    assert choice.finish_reason == "function_call"
    assert choice.message.function_call.name == "get_weather"
    assert json.loads(choice.message.function_call.arguments) == {"location": "London"}
    assert choice.message.tool_calls is None


def test_a_function_result_is_shown_like_a_tool_result(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    called = {"name": "get_weather", "arguments": '{"location": "London"}'}
    history: list[Any] = [
        *ASK,
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "get_weather", "content": "12"},
    ]
    upstream.reply("It is 12.")
    client.chat.completions.create(model="m", messages=history, function_call="auto", **LEGACY)
    told = upstream.requests[0]["messages"][-1]["content"]
    assert 'get_weather(location="London")\n12' in told


def test_a_named_function_must_be_called(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.reply("No.", LONDON)
    completion = client.chat.completions.create(
        model="m", messages=ASK, function_call={"name": "get_weather"}, **LEGACY
    )
    assert completion.choices[0].message.function_call
    assert "send_mail" not in upstream.requests[0]["messages"][0]["content"]


CUSTOM: Any = {"type": "custom", "custom": {"name": "shell", "description": "Run a command."}}


def test_a_custom_tool_gets_one_text(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.reply("```python\nshell('ls -l')\n```", "There is nothing.")
    choice: Any = {"type": "custom", "custom": {"name": "shell"}}
    first = client.chat.completions.create(
        model="m", messages=ASK, tools=[CUSTOM, GET_WEATHER], tool_choice=choice
    )
    message = first.choices[0].message
    assert message.tool_calls
    call: Any = message.tool_calls[0]
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "shell", "ls -l")
    history = [
        *ASK,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": ""},
    ]
    client.chat.completions.create(model="m", messages=history, tools=[CUSTOM])
    assert 'shell(input="ls -l")' in upstream.requests[1]["messages"][-2]["content"]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones_shown(
    client: openai.OpenAI, upstream: ScriptedUpstream, mode: str
) -> None:
    upstream.reply(LONDON)
    choice: Any = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": mode,
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        },
    }
    completion = client.chat.completions.create(
        model="m", messages=ASK, tools=[GET_WEATHER, SEND_MAIL], tool_choice=choice
    )
    assert calls(completion) == [("get_weather", {"location": "London"})]
    told = upstream.requests[0]["messages"][0]["content"]
    assert "send_mail" not in told
    assert ("must answer with a tool_code block" in told) == (mode == "required")


def test_images_in_a_tool_result_reach_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    history: list[Any] = [
        *ASK,
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"location": "x"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "map"}, image]},
    ]
    upstream.reply("I see.")
    client.chat.completions.create(model="m", messages=history, tools=[GET_WEATHER])
    parts = upstream.requests[0]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert parts[1] == image


@pytest.mark.parametrize("tools", [None, [GET_WEATHER]], ids=["alone", "with tools"])
def test_a_strict_answer_may_omit_what_may_be_null(
    client: openai.OpenAI, upstream: ScriptedUpstream, tools: Any
) -> None:
    """browser-use asks for its agent's whole output in this form."""
    properties = {"thinking": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "goal": {}}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    form = {"type": "json_schema", "json_schema": {"name": "o", "strict": True, "schema": schema}}
    upstream.reply('{"goal": "g"}')
    extra = {"tools": tools} if tools else {}
    answer = plain(client, model="m", messages=ASK, response_format=form, **extra)
    text = answer.choices[0].message.content
    assert json.loads(text or "") == {"goal": "g", "thinking": None}


@pytest.mark.parametrize("field", ["input_schema", "inputSchema"])
def test_a_function_may_name_its_schema_as_anthropic_or_mcp_does(
    client: openai.OpenAI, upstream: ScriptedUpstream, field: str
) -> None:
    upstream.reply('```python\nget_weather(location="Oslo")\n```')
    described = GET_WEATHER["function"]
    renamed = {field: described["parameters"], "name": "get_weather", "parameters": None}
    tools: Any = [{"type": "function", "function": renamed}]
    answer = plain(client, model="m", messages=ASK, tools=tools)
    assert calls(answer) == [("get_weather", {"location": "Oslo"})]
    assert "location: str" in upstream.requests[0]["messages"][0]["content"]


SHAPELESS = {"location": {"type": "string"}}
BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": SHAPELESS}}]},
        "tools[0].function.parameters.location",
    ),
    ({"tools": [{"name": "f", "input_schema": SHAPELESS}]}, "tools[0].input_schema.location"),
    ({"functions": [{"name": "f", "inputSchema": SHAPELESS}]}, "functions[0].inputSchema.location"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"properties": {"a": {"$ref": "http://x"}}}},
            }
        },
        "response_format.json_schema.schema.properties.a.$ref",
    ),
    ({"functions": []}, "functions"),
    ({"functions": [{"name": "f", "parameters": {"type": 5}}]}, "functions[0].parameters.type"),
    ({**LEGACY, "function_call": {"name": "nobody"}}, "function_call.name"),
    ({"tools": [{"type": "mcp"}]}, "tools[0].server_label"),
    ({"tools": [{"type": "bing"}], "tool_choice": {"type": "bing"}}, "tool_choice.type"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": ["web_search"]}]}, "tools[0].type"),
    ({"tools": [GET_WEATHER, GET_WEATHER]}, "tools[1].function.name"),
    ({"tools": [GET_WEATHER], "n": 0}, "n"),
    ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content[0]"),
]


@pytest.mark.parametrize(("fields", "param"), BAD)
def test_an_unsupported_option_is_refused_with_its_place(
    proxy: str, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "m", "messages": ASK, **fields}
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"tools": [GET_WEATHER], "tool_choice": "get_weather"},
            "'tool_choice': Input should be 'none', 'auto' or 'required', or an object",
        ),
        ({"stream_options": "usage"}, "'stream_options': Input should be an object"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "'messages[0].content': Input should be a valid string, or a valid list",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_answered_with_every_type_that_it_may_have(
    proxy: str, fields: dict[str, Any], problem: str
) -> None:
    """The name of a tool as `tool_choice` is a likely mistake; no class of the proxy's is named."""
    _, _, answer = send(f"{proxy}/v1/chat/completions", {"model": "m", "messages": ASK, **fields})
    assert answer["error"]["message"].startswith(f"Invalid value for {problem}.")


@pytest.mark.parametrize("tools", [[], [{"type": "web_search"}], [{"type": "of_tomorrow", "x": 1}]])
def test_without_a_tool_that_can_be_run_the_model_just_answers(
    proxy: str, upstream: ScriptedUpstream, tools: list[dict[str, Any]]
) -> None:
    upstream.reply("Hello!")
    body = {"model": "m", "messages": ASK, "tools": tools, "tool_choice": "auto"}
    status, headers, answer = send(f"{proxy}/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello!")
    unsupported_types = ", ".join(tool["type"] for tool in tools)
    assert headers.get("x-emulator-dropped-tools", "") == unsupported_types
    assert not {"tools", "tool_choice"} & upstream.requests[0].keys()


def test_a_hosted_tool_does_not_keep_the_others_from_being_offered(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(LONDON)
    body = {"model": "m", "messages": ASK, "tools": [{"type": "bing"}, GET_WEATHER]}
    _, headers, answer = send(f"{proxy}/v1/chat/completions", body)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert headers["x-emulator-dropped-tools"] == "bing"


ACCOUNT: dict[str, Any] = {
    "client_metadata": {"session": "1"},
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "someone",
    "service_tier": "auto",
    "store": True,
}


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["", "tools"])
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_account_fields_are_sent_only_to_an_upstream_with_accounts(
    start_proxy: StartProxy, upstream: ScriptedUpstream, path: str, tools: list[dict[str, Any]]
) -> None:
    upstream.default = "Hello."
    if path == "responses":
        tools = [{"type": "function", **tool["function"]} for tool in tools]
    body = {"model": "gpt-4o", "messages": ASK, "input": "Hi", "tools": tools, **ACCOUNT}
    for profile in ("auto", "openai"):
        status, _, answer = send(f"{start_proxy(profile=profile)}/v1/{path}", body)
        assert status == 200, answer
    plain, openai_s = upstream.requests
    assert not ACCOUNT.keys() & plain.keys()
    wanted = {"prompt_cache_key", "safety_identifier"} if path == "responses" else set(ACCOUNT)
    assert openai_s.keys() >= wanted


def test_messages_are_made_plain_for_plain_upstreams(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.default = "Hello."
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    sent = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "Ada", "content": parts},
        {"role": "user", "content": [*parts, image]},
    ]
    for profile in ("auto", "openai"):
        send(
            f"{start_proxy(profile=profile)}/v1/chat/completions",
            {"model": "m", "messages": sent},
        )
    plain, untouched = (request["messages"] for request in upstream.requests)
    assert plain == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Ada", "content": "One.\n\nTwo."},
        sent[2],
    ]
    assert untouched == sent


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["", "tools"])
def test_the_upstreams_rate_limits_and_refusals_are_passed_on(
    proxy: str, upstream: ScriptedUpstream, tools: list[dict[str, Any]]
) -> None:
    limits = {"x-ratelimit-remaining-requests": "7"}
    upstream.reply(Reply("Hello.", headers=limits))
    upstream.reply(Reply(status=400, body={"detail": "too many tokens"}, headers=limits))
    problems = {"detail": [{"loc": ["body"], "msg": "no such field", "type": "x"}]}
    upstream.reply(Reply(status=422, body=problems), Reply(status=400, body={"error": "busy"}))
    said = []
    for n in range(4):
        body = {"model": "m", "messages": ASK, "tools": tools}
        _, headers, answer = send(f"{proxy}/v1/chat/completions", body)
        assert n > 1 or headers["x-ratelimit-remaining-requests"] == "7"
        said.append(answer.get("error", {}).get("message"))
    assert said == [None, "too many tokens", "no such field", "busy"]
