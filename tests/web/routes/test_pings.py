"""A silent stream sends pings that clients count as events: their idle timers ignore comments.

Only a chat has no such event; its clients get comments (tests/fronts/chat/test_chat.py).
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import anthropic
import openai
import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import fetch
from tests.support.responses_client import check_events, read_stream
from tests.support.responses_tools import GET_WEATHER
from tests.support.scripted import Reply, ScriptedUpstream

CALL = Reply(chunks=["```tool_code\n", "get_weather(", "location='Oslo')", "\n```"], delay=0.2)
SLOW: dict[str, Reply] = {
    "between words": Reply(chunks=["It ", "rains."], delay=0.3),
    "before the upstream answers": Reply("It rains.", first_delay=0.3),
    "while a call is written": CALL,
}
TOOL: Any = {"name": "get_weather", "input_schema": GET_WEATHER["parameters"]}


@pytest.fixture
def url(start_proxy: StartProxy) -> str:
    return start_proxy(ping_seconds=0.02)


def responses_stream(url: str, **fields: Any) -> bytes:
    body = {"model": "m", "input": "Hi", "tools": [GET_WEATHER], "stream": True, **fields}
    status, _, data = fetch(f"{url}/v1/responses", body)
    assert status == 200, data
    return data


@pytest.mark.parametrize("reply", SLOW.values(), ids=[*SLOW])
def test_a_silent_response_sends_in_progress_again(
    url: str, upstream: ScriptedUpstream, reply: Reply
) -> None:
    """Codex gave up on a stream that sent only comments (openai/codex#31539)."""
    upstream.reply(reply)
    data = responses_stream(url)
    events = read_stream(data)
    pings = [event for event in events if event["type"] == "response.in_progress"][1:]
    assert pings
    assert {ping["response"]["id"] for ping in pings} == {events[0]["response"]["id"]}
    check_events(events)


@pytest.mark.parametrize("reply", SLOW.values(), ids=[*SLOW])
def test_the_openai_sdk_reads_a_response_with_pings(
    url: str, upstream: ScriptedUpstream, reply: Reply
) -> None:
    upstream.reply(reply)
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="Hi", tools=[GET_WEATHER]) as stream,  # type: ignore[list-item]
    ):
        numbers = [event.sequence_number for event in stream]
        [item] = stream.get_final_response().output
    assert all(one < other for one, other in pairwise(numbers))
    if reply is CALL:
        assert item.type == "function_call" and json.loads(item.arguments) == {"location": "Oslo"}
    else:
        assert item.type == "message" and item.content[0].to_dict()["text"] == "It rains."


@pytest.mark.parametrize("reply", SLOW.values(), ids=[*SLOW])
def test_a_replay_gives_each_event_the_number_that_it_had_between_pings(
    url: str, upstream: ScriptedUpstream, reply: Reply
) -> None:
    upstream.reply(reply)
    events = read_stream(responses_stream(url))
    stored = f"{url}/v1/responses/{events[0]['response']['id']}?stream=true"
    _, _, data = fetch(stored)
    replayed = read_stream(data)
    assert [event["type"] for event in replayed].count("response.in_progress") == 1
    first, second, *rest = replayed
    assert [first, second] == events[:2]
    assert rest == [one for one in events if one["type"] != "response.in_progress"][1:]
    for event in replayed:
        number = event["sequence_number"]
        _, _, data = fetch(f"{stored}&starting_after={number}")
        assert read_stream(data) == [one for one in replayed if one["sequence_number"] > number]


def test_pings_among_quick_events_leave_their_numbers_dense_and_in_order(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """A ping is due all the time: it must not come between an event's numbering and its writing."""
    url = start_proxy(ping_seconds=0.0001)
    upstream.reply(Reply(chunks=[f"{n} " for n in range(300)], delay=0.001))
    frames = responses_stream(url).decode().split("\n\n")
    events = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames if "\ndata: " in frame]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert events[-1]["response"]["output"][0]["content"][0]["text"].split()[-1] == "299"


def test_a_ping_is_short_however_long_the_request_is(url: str, upstream: ScriptedUpstream) -> None:
    """A client that does not read must not block the thread that writes the pings of all clients."""
    upstream.reply(SLOW["between words"])
    long = {
        "instructions": "Be brief. " * 10_000,
        "metadata": {f"key {n}": "x" * 500 for n in range(16)},
    }
    frames = responses_stream(url, **long).split(b"\n\n")
    pings = [frame for frame in frames if frame.startswith(b"event: response.in_progress")][1:]
    assert pings and max(map(len, pings)) < 2000


def test_a_late_failure_follows_pings(url: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(Reply(status=400, body={"error": {"message": "too long"}}, first_delay=0.3))
    events = read_stream(responses_stream(url))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == ["created", *["in_progress"] * (len(kinds) - 2), "failed"]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]


@pytest.mark.parametrize("reply", SLOW.values(), ids=[*SLOW])
def test_a_silent_message_sends_anthropics_ping(
    url: str, upstream: ScriptedUpstream, reply: Reply
) -> None:
    upstream.reply(reply)
    ask: dict[str, Any] = {
        "model": "m",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [TOOL],
    }
    status, _, data = fetch(f"{url}/v1/messages", {**ask, "stream": True})
    assert status == 200, data
    frames = data.decode().split("\n\n")
    assert 'event: ping\ndata: {"type":"ping"}' in frames
    assert not any(frame.startswith(":") for frame in frames)
    upstream.reply(reply)
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
        client.messages.stream(**ask) as stream,
    ):
        [block] = stream.get_final_message().content
    if reply is CALL:
        assert block.type == "tool_use" and block.input == {"location": "Oslo"}
    else:
        assert block.type == "text" and block.text == "It rains."
