"""The wire of /v1/responses: what real clients send is accepted, and every byte back is as OpenAI's
schemas have it, streamed or not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from tests.conftest import StartProxy
from tests.support.openai_wire import NEVER_FORWARDED, example, recorded_requests
from tests.support.responses_client import (
    ask,
    ask_stream,
    check_events,
    fetch,
    read_stream,
    whole_text,
    without_ids,
)
from tests.support.responses_tools import FORM, GET_WEATHER, LONDON, SHELL, Json
from tests.support.scripted import DONE, Reply, ScriptedUpstream, sse

# Fields of the Responses API that no chat model knows.
NOT_CHATS = {
    "input",
    "instructions",
    "text",
    "include",
    "store",
    "previous_response_id",
    "metadata",
}

REQUESTS = recorded_requests("/v1/responses")


def with_interpreter(recorded: Json) -> bool:
    return any(tool["type"] == "code_interpreter" for tool in recorded["body"].get("tools", ()))


def obedient_reply(body: Mapping[str, Any]) -> str:
    """What a model writes that does as ``body`` asks: a call if it may, else an answer of the form."""
    choice = body.get("tool_choice", "auto")
    for tool in body.get("tools", ()):
        if isinstance(choice, str) or choice["name"] == tool["name"]:
            arguments = example(tool["parameters"], tool["parameters"])
            return f"```json\n{json.dumps({'name': tool['name'], 'arguments': arguments})}\n```"
    form = body.get("text", {}).get("format", {"type": "text"})
    if form["type"] == "json_schema":
        return json.dumps(example(form["schema"], form["schema"]))
    return "Hello there."


@pytest.mark.parametrize(
    "recorded",
    [r for r in REQUESTS if not with_interpreter(r)],
    ids=lambda recorded: recorded["name"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
def test_a_recorded_request_of_a_real_client_is_answered(
    proxy: str, upstream: ScriptedUpstream, recorded: Json, stream: bool
) -> None:
    body = recorded["body"]
    upstream.default = Reply(obedient_reply(body), chunks=5)
    response = check_events(ask_stream(proxy, body)) if stream else ask(proxy, body)
    assert (response["model"], response["status"]) == (body["model"], "completed")
    functions = [tool for tool in body.get("tools", ()) if tool["type"] == "function"]
    tools = {tool["name"]: tool["parameters"] for tool in functions}
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    for call in calls:
        jsonschema.validate(json.loads(call["arguments"]), tools[call["name"]])
    assert bool(calls) == bool(tools)
    assert not (NEVER_FORWARDED | NOT_CHATS) & set(upstream.requests[0])


@pytest.mark.parametrize(
    "recorded",
    [r for r in REQUESTS if with_interpreter(r)],
    ids=lambda recorded: recorded["name"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
def test_a_recorded_request_with_the_code_interpreter_is_answered(
    proxy: str, upstream: ScriptedUpstream, recorded: Json, stream: bool
) -> None:
    upstream.default = Reply("It is 4.", chunks=2)
    body = recorded["body"]
    response = check_events(ask_stream(proxy, body)) if stream else ask(proxy, body)
    assert [whole_text(item) for item in response["output"]] == ["It is 4."]


# What the proxy answers

TOOLS: Json = {"tools": [GET_WEATHER, SHELL]}
BOTH = "```tool_code\nfor city in ['London', 'Paris']:\n    get_weather(city)\n```"
LONDON_CALL = ("function_call", '{"location":"London"}')
PARIS_CALL = ("function_call", '{"location":"Paris"}')


@dataclass(frozen=True)
class Row:
    """What the client asks for, what the model writes, what the client must get."""

    name: str
    extra: Json
    replies: tuple[Reply | str, ...]
    output: tuple[tuple[str, str], ...]
    """The type and the text of each item."""
    incomplete: str | None = None


def said(text: str) -> tuple[str, str]:
    return ("message", text)


ROWS = [
    Row("prose", {}, ("It rains.",), (said("It rains."),)),
    Row("prose though there are tools", TOOLS, ("It rains.",), (said("It rains."),)),
    Row("code though there are no tools", {}, (LONDON,), (said(LONDON),)),
    Row("tools not to be used", {**TOOLS, "tool_choice": "none"}, (LONDON,), (said(LONDON),)),
    Row("one call", TOOLS, (LONDON,), (LONDON_CALL,)),
    Row("two calls", TOOLS, (BOTH,), (LONDON_CALL, PARIS_CALL)),
    Row("words, then a call", TOOLS, (f"Hm.\n{LONDON}",), (said("Hm."), LONDON_CALL)),
    Row("a custom tool", TOOLS, ("```tool_code\nshell('ls')\n```",), (("custom_tool_call", "ls"),)),
    Row(
        "reasoning in a field",
        {},
        (Reply("It rains.", reasoning="Look out."),),
        (("reasoning", "Look out."), said("It rains.")),
    ),
    Row(
        "reasoning in tags, then a call",
        TOOLS,
        (f"<think>Look it up.</think>\n{LONDON}",),
        (("reasoning", "Look it up."), LONDON_CALL),
    ),
    Row("repaired", TOOLS, ("```tool_code\nget_weather(town=1)\n```", LONDON), (LONDON_CALL,)),
    Row(
        "cut off",
        TOOLS,
        (Reply("It ra", finish_reason="length"),),
        (said("It ra"),),
        "max_output_tokens",
    ),
    Row(
        "cut off before a word",
        {},
        (Reply("", finish_reason="length"),),
        (),
        "max_output_tokens",
    ),
    Row(
        "filtered",
        {},
        (Reply("It", finish_reason="content_filter"),),
        (said("It"),),
        "content_filter",
    ),
    Row("an answer in a form", FORM, ('Here: {"rain": "true"}',), (said('{"rain":true}'),)),
    Row("an answer in a form, with tools", TOOLS | FORM, (LONDON,), (LONDON_CALL,)),
]
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


@EACH_ROW
@pytest.mark.parametrize("size", [1, 1000], ids=["in crumbs", "whole"])
def test_a_stream_makes_the_same_response_as_a_request_without_one(
    proxy: str, upstream: ScriptedUpstream, row: Row, size: int
) -> None:
    cut = [
        reply if isinstance(reply, Reply) else Reply(reply, chunks=size) for reply in row.replies
    ]
    body = {"model": "m", "input": "What's the weather in London?", **row.extra}
    upstream.reply(*cut, *cut)
    whole = ask(proxy, body)
    streamed = check_events(ask_stream(proxy, body))
    for response in (whole, streamed):
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        if (
            size == 1
        ):  # a reply is left when its call is whole, and what had come by then is counted
            response["usage"] = {**usage, "output_tokens": 0, "total_tokens": 0}
    assert without_ids(streamed) == without_ids(whole)

    assert [(item["type"], whole_text(item)) for item in whole["output"]] == [*row.output]
    status = "incomplete" if row.incomplete else "completed"
    reason = {"reason": row.incomplete} if row.incomplete else None
    assert (whole["status"], whole["incomplete_details"]) == (status, reason)
    assert (whole["completed_at"] is None) is bool(row.incomplete)
    texts = [item for item in whole["output"] if item["type"] == "message"]
    assert all(item["status"] == status for item in texts[-1:])


@EACH_ROW
def test_a_stored_response_is_replayed_event_by_event(
    proxy: str, upstream: ScriptedUpstream, row: Row
) -> None:
    upstream.reply(
        *(reply if isinstance(reply, Reply) else Reply(reply, chunks=3) for reply in row.replies)
    )
    events = ask_stream(proxy, {"model": "m", "input": "Weather?", **row.extra})
    url = f"{proxy}/v1/responses/{events[0]['response']['id']}"
    assert json.loads(fetch(url)[1]) == events[-1]["response"]
    assert read_stream(fetch(f"{url}?stream=true")[1]) == events
    assert read_stream(fetch(f"{url}?stream=true&starting_after=2")[1]) == events[3:]
    assert fetch(f"{url}?stream=true&starting_after={len(events)}") == (200, b"")


@pytest.mark.parametrize("tools", [{}, TOOLS], ids=["", "with tools"])
def test_the_upstreams_usage_is_reported(
    proxy: str, upstream: ScriptedUpstream, tools: Json
) -> None:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    upstream.reply(Reply("It rains.", usage=usage))
    assert ask(proxy, {"model": "m", "input": "Weather?", **tools})["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 29,
    }


def test_a_response_echoes_the_fields_of_its_request(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    asked: Json = {
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "cache",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "someone",
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "none",
        "tools": [GET_WEATHER],
        "top_logprobs": 2,
        "top_p": 0.9,
        "user": "user",
    }
    response = ask(proxy, {"model": "m", "input": "Hello", **asked})
    assert {name: response[name] for name in asked} == asked
    rest = {
        name: response[name]
        for name in response.keys()
        - asked.keys()
        - {"id", "created_at", "completed_at", "output", "usage"}
    }
    assert rest == {
        "background": False,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "model": "m",
        "object": "response",
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "service_tier": "default",
        "status": "completed",
        "truncation": "disabled",
    }
    # What concerns an account at OpenAI stays here: safety_identifier, prompt_cache_key, store, metadata.
    [sent] = upstream.requests
    assert sent == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "max_tokens": 100,
        "reasoning_effort": "low",
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "user",
        "verbosity": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


TOKENS: list[Json] = [
    {"token": "Hel", "logprob": -0.5, "top_logprobs": [{"token": "Hi", "logprob": -1.0}]},
    {"token": "lo.", "logprob": -0.25, "bytes": [108, 111, 46]},
]
LOGPROBS = "message.output_text.logprobs"


@pytest.mark.parametrize("tools", [None, "native", "emulate"])
@pytest.mark.parametrize("include", [[LOGPROBS], None])
def test_log_probabilities_pass_where_the_answer_does(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str | None, include: Any
) -> None:
    """`include` and `top_logprobs` had no effect."""
    chunks = [
        {
            "delta": {"role": "assistant", "content": "<think>No</think>"},
            "logprobs": {"content": TOKENS[:1]},
        },
        {"delta": {"content": "Hel"}, "logprobs": {"content": TOKENS[:1]}},
        {"delta": {"content": "lo."}, "logprobs": {"content": TOKENS[1:]}, "finish_reason": "stop"},
    ]
    frames = [sse({"choices": [{"index": 0, **one}]}) for one in chunks[bool(tools) :]]
    upstream.default = Reply(frames=[*frames, DONE])
    url = start_proxy(tools=tools or "emulate")
    body: Json = {"model": "m", "input": "Hi", "include": include, "top_logprobs": 1}
    if tools:
        body["tools"] = [GET_WEATHER]
    response = ask(url, body)
    events = ask_stream(url, body)
    passes = bool(include) and tools != "emulate"
    sent = upstream.requests[-1]
    assert (sent.get("logprobs"), sent.get("top_logprobs")) == (
        (True, 1) if passes else (None, None)
    )
    if not include:
        return
    [part] = response["output"][-1]["content"]
    deltas = [
        one for e in events if e["type"].endswith("output_text.delta") for one in e["logprobs"]
    ]
    done = next(event["logprobs"] for event in events if event["type"].endswith("output_text.done"))
    found = [(one["token"], one["logprob"], one["bytes"]) for one in part["logprobs"]]
    expected = [("Hel", -0.5, [72, 101, 108]), ("lo.", -0.25, [108, 111, 46])]
    assert found == (expected if passes else [])
    assert part["logprobs"] == deltas == done
    if passes:
        assert deltas[0]["top_logprobs"][0]["token"] == "Hi"
