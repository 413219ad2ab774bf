"""The wire itself: what real clients send is accepted, and every byte back is as OpenAI's schemas have it.

The requests and the schemas are those of `openai_wire.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest

from tests.support.openai_wire import NEVER_FORWARDED, example, recorded_requests, validator
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import CREATE_EVENT, GET_WEATHER

COMPLETION = validator("CreateChatCompletionResponse")
CHUNK = validator("CreateChatCompletionStreamResponse")


def ask(proxy: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(post(proxy, {**body, "stream": False}))


def ask_stream(proxy: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, whose frames are exactly ``data: JSON`` and at last ``data: [DONE]``."""
    *frames, done, rest = post(proxy, {**body, "stream": True}).decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def post(proxy: str, body: Mapping[str, Any]) -> bytes:
    status, headers, data = fetch(f"{proxy}/v1/chat/completions", body)
    assert status == 200 and headers["x-request-id"]
    return data


# The rules of chunks


@dataclass
class Call:
    """A call put together from its deltas, as the SDKs' accumulators do."""

    id: str
    kind: str
    name: str
    text: str = ""
    steps: list[str] = field(default_factory=list)


@dataclass
class Choice:
    role: str | None = None
    content: str | None = None
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish_reason: str | None = None


def fold(chunks: list[dict[str, Any]], *, include_usage: bool, n: int = 1) -> list[Choice]:
    """The choices that the chunks make. Asserts each rule that some client relies on."""
    repeated = ("id", "object", "created", "model")
    assert len({tuple(chunk[name] for name in repeated) for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-")
    assert chunks[0]["object"] == "chat.completion.chunk"
    if include_usage:
        *chunks, last = chunks
        assert last["choices"] == [] and last["usage"]["total_tokens"] > 0
    assert not any(chunk.get("usage") for chunk in chunks)
    assert all("usage" not in chunk or include_usage for chunk in chunks)
    assert chunks[0]["choices"][0]["index"] == 0

    choices = [Choice() for _ in range(n)]
    for chunk in chunks:
        [part] = chunk["choices"]
        choice, delta = choices[part["index"]], part["delta"]
        assert choice.finish_reason is None, "a delta behind the finish reason"
        if part["finish_reason"] is not None:
            assert delta == {}
            choice.finish_reason = part["finish_reason"]
            continue
        assert ("role" in delta) == (choice.role is None), "the role comes first, and once"
        choice.role = delta.pop("role", choice.role)
        if isinstance(text := delta.pop("content", None), str):
            assert not choice.calls, "prose behind a call"
            choice.content = (choice.content or "") + text
        choice.reasoning += delta.pop("reasoning_content", "")
        if "tool_calls" in delta:
            [one] = delta.pop("tool_calls")  # LlamaIndex loses all but the first of a chunk
            add(choice.calls, one)
        assert delta == {}, "a field that no client expects"
    for choice in choices:
        assert choice.role == "assistant" and choice.finish_reason
        for call in choice.calls:
            # Clients parse arguments as they grow: what was sent is never taken back.
            assert all(call.text.startswith(step) for step in call.steps)
    ids = [call.id for choice in choices for call in choice.calls]
    assert len(set(ids)) == len(ids)
    assert all(id.startswith("call_") and len(id) > 16 for id in ids)
    return choices


def add(calls: list[Call], delta: dict[str, Any]) -> None:
    """Id, type and name once, in a call's first delta; indices without gaps, the last one growing."""
    index = delta.pop("index")
    assert index in (len(calls) - 1, len(calls)), "indices are dense, and calls are not interleaved"
    if index == len(calls):
        kind = delta.pop("type")
        called = delta.pop(kind)
        text_name = {"function": "arguments", "custom": "input"}[kind]
        assert set(called) == {"name", text_name}
        calls.append(Call(delta.pop("id"), kind, called["name"], called[text_name]))
    else:
        [text] = delta.pop(calls[-1].kind).values()
        calls[-1].text += text
    calls[-1].steps.append(calls[-1].text)
    assert delta == {}


# What clients send

REQUESTS = recorded_requests("/v1/chat/completions")


def offered(body: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> parameters of the tools that a model may call."""
    functions = [tool["function"] for tool in body.get("tools", ()) if tool["type"] == "function"]
    functions += body.get("functions", [])
    custom = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    found = {function["name"]: function.get("parameters") or {} for function in functions}
    found |= {tool["custom"]["name"]: custom for tool in body.get("tools", ()) if "custom" in tool}
    choice = body.get("tool_choice", body.get("function_call", "auto"))
    if choice == "none":
        return {}
    if isinstance(choice, str):
        return found
    named = choice.get(choice.get("type"), choice)
    allowed = [tool[tool["type"]]["name"] for tool in named.get("tools", ())] or [named["name"]]
    return {name: found[name] for name in allowed}


def obedient_reply(body: Mapping[str, Any]) -> str:
    """What a model writes that does as ``body`` asks: a call if it may, else an answer of the form."""
    for name, parameters in offered(body).items():
        call = {"name": name, "arguments": example(parameters, parameters)}
        return f"```json\n{json.dumps(call)}\n```"
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        schema = form["json_schema"]["schema"]
        return json.dumps(example(schema, schema))
    return '{"a": 1}' if form.get("type") == "json_object" else "Hello there."


@pytest.mark.parametrize("recorded", REQUESTS, ids=lambda recorded: recorded["name"])
def test_a_recorded_request_of_a_real_client_is_answered(
    proxy: str, upstream: ScriptedUpstream, recorded: dict[str, Any]
) -> None:
    body = recorded["body"]
    upstream.default = Reply(obedient_reply(body), chunks=5)
    completion = ask(proxy, body)
    COMPLETION.validate(completion)
    assert completion["model"] == body["model"]
    message = completion["choices"][0]["message"]
    tools = offered(body)
    called = [call[call["type"]] for call in message.get("tool_calls", ())]
    called += [message["function_call"]] if "function_call" in message else []
    for function in called:
        arguments = {"input": function["input"]} if "input" in function else None
        arguments = arguments or json.loads(function["arguments"])
        jsonschema.validate(arguments, tools[function["name"]])
    assert bool(called) == bool(tools)
    assert not NEVER_FORWARDED & set(upstream.requests[0])

    if any(tool["type"] == "custom" for tool in body.get("tools", ())):
        return  # neither the schemas nor the SDK have a chunk for the call of a custom tool
    asked = bool((body.get("stream_options") or {}).get("include_usage"))
    chunks = ask_stream(proxy, body)
    for chunk in chunks:
        CHUNK.validate(chunk)
    if "function_call" not in message:
        [choice] = fold(chunks, include_usage=asked)
        assert (choice.content, choice.finish_reason) == (
            message["content"],
            completion["choices"][0]["finish_reason"],
        )


# What the proxy answers

USER = [{"role": "user", "content": "What's the weather in London?"}]
LONDON = '```python\nget_weather(location="London")\n```'
BOTH = "```python\nfor city in ['London', 'Paris']:\n    get_weather(city)\n```"
TOOLS: dict[str, Any] = {"tools": [GET_WEATHER, CREATE_EVENT]}
FORM: dict[str, Any] = {"response_format": {"type": "json_object"}}
LONDON_CALL = ("get_weather", {"location": "London"})
PARIS_CALL = ("get_weather", {"location": "Paris"})


@dataclass(frozen=True)
class Row:
    """What the client asks for, what the model writes, what the client must get."""

    name: str
    extra: dict[str, Any]
    replies: tuple[Reply | str, ...]
    content: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    finish_reason: str = "stop"
    reasoning: str = ""


ROWS = [
    Row("prose", TOOLS, ("It rains.",), "It rains."),
    Row("one call", TOOLS, (LONDON,), None, (LONDON_CALL,), "tool_calls"),
    Row("two calls", TOOLS, (BOTH,), None, (LONDON_CALL, PARIS_CALL), "tool_calls"),
    Row("words, then a call", TOOLS, (f"Hm.\n{LONDON}",), "Hm.", (LONDON_CALL,), "tool_calls"),
    Row(
        "reasoning in a field, then prose",
        TOOLS,
        (Reply("It rains.", reasoning="Look out."),),
        "It rains.",
        reasoning="Look out.",
    ),
    Row(
        "reasoning in tags, then a call",
        TOOLS,
        (f"<think>Look it up.</think>\n{LONDON}",),
        None,
        (LONDON_CALL,),
        "tool_calls",
        "Look it up.",
    ),
    Row(
        "repaired",
        TOOLS,
        ("```python\nget_weather(town='London')\n```", LONDON),
        None,
        (LONDON_CALL,),
        "tool_calls",
    ),
    Row("cut off", TOOLS, (Reply("It ra", finish_reason="length"),), "It ra", (), "length"),
    Row(
        "filtered",
        TOOLS,
        (Reply("It", finish_reason="content_filter"),),
        "It",
        (),
        "content_filter",
    ),
    Row("tools not to be used", {**TOOLS, "tool_choice": "none"}, (LONDON,), LONDON),
    Row("no tools", {}, ("It rains.",), "It rains."),
    Row("no tools, reasoning", {}, (Reply("It.", reasoning="Hm."),), "It.", reasoning="Hm."),
    Row("a JSON answer", FORM, ('Here: {"rain": true}',), '{"rain":true}'),
    Row("a JSON answer with tools", TOOLS | FORM, ('```json\n{"rain": 1}\n```',), '{"rain":1}'),
    Row(
        "no arguments",
        {"tools": [{"type": "function", "function": {"name": "now"}}]},
        ("```python\nnow()\n```",),
        None,
        (("now", {}),),
        "tool_calls",
    ),
]
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


@EACH_ROW
def test_a_completion_is_as_openai_describes_it(
    proxy: str, upstream: ScriptedUpstream, row: Row
) -> None:
    upstream.reply(*row.replies)
    completion = ask(proxy, {"model": "m", "messages": USER, **row.extra})
    COMPLETION.validate(completion)
    [choice] = completion["choices"]
    message = choice["message"]
    calls = message.get("tool_calls", [])
    assert (completion["object"], completion["model"]) == ("chat.completion", "m")
    assert (message["content"], choice["finish_reason"]) == (row.content, row.finish_reason)
    assert message.get("reasoning_content", "") == row.reasoning
    functions = [call["function"] for call in calls]
    assert [(f["name"], json.loads(f["arguments"])) for f in functions] == [*row.calls]
    assert ("tool_calls" in message) == bool(row.calls), "absent, not null or empty"
    assert completion["usage"]["total_tokens"] > 0


@EACH_ROW
@pytest.mark.parametrize("include_usage", [False, True], ids=["", "with usage"])
@pytest.mark.parametrize("size", [1, 1000], ids=["in crumbs", "whole"])
def test_a_stream_is_as_openai_describes_it(
    proxy: str, upstream: ScriptedUpstream, row: Row, include_usage: bool, size: int
) -> None:
    cut = [
        reply if isinstance(reply, Reply) else Reply(reply, chunks=size) for reply in row.replies
    ]
    upstream.reply(*cut)
    body = {"model": "m", "messages": USER, **row.extra}
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    chunks = ask_stream(proxy, body)
    for chunk in chunks:
        CHUNK.validate(chunk)
    [choice] = fold(chunks, include_usage=include_usage)
    assert (choice.content, choice.finish_reason) == (row.content, row.finish_reason)
    assert choice.reasoning == row.reasoning
    assert [(call.name, json.loads(call.text)) for call in choice.calls] == [*row.calls]


def test_several_choices_are_streamed_from_the_first_on(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(BOTH, "It rains.")
    body = {"model": "m", "messages": USER, "n": 2, "stream_options": {"include_usage": True}}
    chunks = ask_stream(proxy, body | TOOLS)
    for chunk in chunks:
        CHUNK.validate(chunk)
    first, second = fold(chunks, include_usage=True, n=2)
    assert [call.name for call in first.calls] == ["get_weather", "get_weather"]
    assert (first.finish_reason, second.content) == ("tool_calls", "It rains.")


@pytest.mark.parametrize("stream", [False, True])
def test_the_old_shape_of_a_call_is_as_openai_describes_it(
    proxy: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(LONDON)
    body = {"model": "m", "messages": USER, "functions": [GET_WEATHER["function"]]}
    if not stream:
        completion = ask(proxy, body)
        COMPLETION.validate(completion)
        assert completion["choices"][0]["message"]["function_call"]["name"] == "get_weather"
        return
    chunks = ask_stream(proxy, body)
    for chunk in chunks:
        CHUNK.validate(chunk)
    deltas = [chunk["choices"][0]["delta"].get("function_call", {}) for chunk in chunks]
    assert [delta["name"] for delta in deltas if "name" in delta] == ["get_weather"]
    assert json.loads("".join(delta.get("arguments", "") for delta in deltas)) == {
        "location": "London"
    }


def test_the_call_of_a_custom_tool_is_as_openai_describes_it(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```python\nshell('ls')\n```", "```python\nshell('ls')\n```")
    tool = {"type": "custom", "custom": {"name": "shell"}}
    body = {"model": "m", "messages": USER, "tools": [tool]}
    completion = ask(proxy, body)
    COMPLETION.validate(completion)
    [call] = completion["choices"][0]["message"]["tool_calls"]
    assert call["custom"] == {"name": "shell", "input": "ls"}
    [choice] = fold(ask_stream(proxy, body), include_usage=False)
    assert [(call.kind, call.name, call.text) for call in choice.calls] == [
        ("custom", "shell", "ls")
    ]
