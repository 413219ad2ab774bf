"""The scripted upstream and the WSGI server of the other tests, read with the official client."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.scripted import ERROR_EVENT, USAGE, Reply, ScriptedUpstream
from tests.support.serving import serve

USER: Any = [{"role": "user", "content": "What's the weather in London?"}]
CALL = {"name": "get_weather", "arguments": {"city": "Oslo"}}


@pytest.fixture
def direct(upstream: ScriptedUpstream) -> Iterator[openai.OpenAI]:
    """The official client with no proxy between."""
    with openai.OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0) as client:
        yield client


def deltas(client: openai.OpenAI, **options: Any) -> list[dict[str, Any]]:
    """What a streamed answer adds, choice by choice; a usage is an entry of its own."""
    seen: list[dict[str, Any]] = []
    stream = client.chat.completions.create(model="m", messages=USER, stream=True, **options)
    for event in stream:
        if event.usage is not None:
            seen.append({"usage": event.usage.model_dump(exclude_none=True)})
        for choice in event.choices:
            seen.append(choice.delta.model_dump(exclude_unset=True))
            if choice.finish_reason is not None:
                seen.append({"finish_reason": choice.finish_reason})
    return seen


def post(upstream: ScriptedUpstream, body: Any) -> http.client.HTTPResponse:
    """The answer to a bare POST, still unread."""
    connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse()


OPENING = {"role": "assistant", "content": ""}
STOP = [{}, {"finish_reason": "stop"}]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(Reply(""), [OPENING, *STOP], id="nothing"),
        pytest.param(Reply("Hello"), [OPENING, {"content": "Hello"}, *STOP], id="whole"),
        pytest.param(
            Reply("Hællo", chunks=2),
            [OPENING, {"content": "Hæ"}, {"content": "ll"}, {"content": "o"}, *STOP],
            id="cut by size",
        ),
        pytest.param(
            Reply(chunks=["He", "", "llo"]),
            [OPENING, {"content": "He"}, {"content": ""}, {"content": "llo"}, *STOP],
            id="exact pieces",
        ),
        pytest.param(
            Reply("Hi", reasoning="hmm", chunks=2),
            [
                OPENING,
                {"reasoning_content": "hm"},
                {"reasoning_content": "m"},
                {"content": "Hi"},
                *STOP,
            ],
            id="reasoning first",
        ),
        pytest.param(
            Reply("Hi", reasoning="hmm", reasoning_field="reasoning"),
            [OPENING, {"reasoning": "hmm"}, {"content": "Hi"}, *STOP],
            id="reasoning under its other name",
        ),
        pytest.param(
            Reply(tool_calls=[CALL], finish_reason="tool_calls", chunks=10),
            [
                OPENING,
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_0",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": ""},
                        }
                    ]
                },
                {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "'}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": 'Oslo"}'}}]},
                {},
                {"finish_reason": "tool_calls"},
            ],
            id="tool calls",
        ),
        pytest.param(
            Reply("cut", finish_reason=None, echo_done=False),
            [OPENING, {"content": "cut"}],
            id="a stream that just ends",
        ),
    ],
)
def test_a_stream_carries_what_the_test_wrote(
    upstream: ScriptedUpstream,
    direct: openai.OpenAI,
    reply: Reply,
    expected: list[dict[str, Any]],
) -> None:
    upstream.reply(reply)
    assert deltas(direct) == expected


@pytest.mark.parametrize(
    ("reply", "message", "finish_reason", "usage"),
    [
        (Reply("Hello", chunks=1), {"content": "Hello"}, "stop", dict(USAGE)),
        (Reply("Hello", usage=None), {"content": "Hello"}, "stop", None),
        (
            Reply("Hi", reasoning="hmm", finish_reason="length"),
            {"content": "Hi", "reasoning_content": "hmm"},
            "length",
            dict(USAGE),
        ),
        (
            Reply(tool_calls=[CALL | {"id": "call_A"}], finish_reason="tool_calls"),
            {
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_A",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                    }
                ],
            },
            "tool_calls",
            dict(USAGE),
        ),
    ],
)
def test_a_plain_completion_carries_what_the_test_wrote(
    upstream: ScriptedUpstream,
    direct: openai.OpenAI,
    reply: Reply,
    message: dict[str, Any],
    finish_reason: str,
    usage: dict[str, Any] | None,
) -> None:
    upstream.reply(reply)
    completion = direct.chat.completions.create(model="m", messages=USER)
    choice = completion.choices[0]
    assert choice.message.model_dump(exclude_unset=True) == {"role": "assistant"} | message
    assert choice.finish_reason == finish_reason
    assert (completion.usage and completion.usage.model_dump(exclude_none=True)) == usage


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, []), ({"stream_options": {"include_usage": True}}, [{"usage": dict(USAGE)}])],
)
def test_a_stream_tells_its_usage_only_when_asked(
    upstream: ScriptedUpstream,
    direct: openai.OpenAI,
    options: dict[str, Any],
    expected: list[dict[str, Any]],
) -> None:
    upstream.reply("Hello")
    assert deltas(direct, **options) == [OPENING, {"content": "Hello"}, *STOP, *expected]


def test_replies_are_used_in_order_and_requests_are_recorded(
    upstream: ScriptedUpstream, direct: openai.OpenAI
) -> None:
    upstream.reply("one", "two", chunks=1)
    upstream.reply(lambda body: f"{body['model']} asked {len(upstream.requests)} times")
    answers = []
    for model in ("a", "b", "c"):
        completion = direct.chat.completions.create(model=model, messages=USER)
        answers.append(completion.choices[0].message.content)
    assert answers == ["one", "two", "c asked 3 times"]
    assert upstream.requests == [{"model": model, "messages": USER} for model in ("a", "b", "c")]
    assert [headers["authorization"] for headers in upstream.headers] == ["Bearer key"] * 3
    assert upstream.pending == 0


def test_models_are_listed(direct: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    assert [model.id for model in direct.models.list()] == ["scripted"]
    assert [(e.method, e.path) for e in upstream.exchanges] == [("GET", "/v1/models")]
    assert upstream.requests == []


def test_an_unscripted_request_fails_loudly_and_is_not_asked_again() -> None:
    def broken(body: dict[str, Any]) -> str:
        return str(body["absent"])

    with ScriptedUpstream(broken) as upstream:
        client = openai.OpenAI(base_url=upstream.base_url, api_key="key")
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="ScriptedUpstream"):
                client.chat.completions.create(model="m", messages=USER)
        assert upstream.failures == [
            "ScriptedUpstream: the reply to request 1 raised KeyError('absent')",
            "ScriptedUpstream: no reply is queued for request 2",
        ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (Reply(status=500), openai.InternalServerError, "scripted status 500"),
        (Reply(status=401), openai.AuthenticationError, "scripted status 401"),
        (
            Reply(status=400, body={"error": {"message": "context too long", "code": "x"}}),
            openai.BadRequestError,
            "context too long",
        ),
        (Reply(status=502, body="<html>Bad gateway"), openai.InternalServerError, "<html>Bad"),
    ],
)
def test_an_error_status_is_answered_before_any_stream(
    upstream: ScriptedUpstream,
    direct: openai.OpenAI,
    stream: bool,
    reply: Reply,
    error: type[openai.APIStatusError],
    message: str,
) -> None:
    upstream.reply(reply)
    with pytest.raises(error) as caught:
        direct.chat.completions.create(model="m", messages=USER, stream=stream)
    assert caught.value.status_code == reply.status
    assert message in caught.value.response.text


def test_a_status_carries_its_headers(upstream: ScriptedUpstream, direct: openai.OpenAI) -> None:
    upstream.reply(Reply(status=429, headers={"retry-after": "7"}))
    with pytest.raises(openai.RateLimitError) as caught:
        direct.chat.completions.create(model="m", messages=USER)
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("after", [0, 2, 5, 9])
def test_a_drop_resets_the_connection_after_so_many_deltas(
    upstream: ScriptedUpstream, after: int
) -> None:
    upstream.reply(Reply("Hello", chunks=1, fault="drop", after=after))
    response = post(upstream, {"stream": True})
    received = b""
    with pytest.raises(ConnectionResetError):
        while piece := response.read1():
            received += piece
    assert received.count(b'"content": ') - received.count(b'"content": ""') == min(after, 5)
    assert b'finish_reason": "stop' not in received
    assert not upstream.aborted.is_set()


def test_a_drop_of_a_plain_completion_comes_in_the_middle_of_its_body(
    upstream: ScriptedUpstream,
) -> None:
    upstream.reply(Reply("Hello", fault="drop"))
    response = post(upstream, {})
    with pytest.raises(ConnectionResetError):
        response.read()


@pytest.mark.parametrize("stream", [True, False])
def test_malformed_is_a_frame_that_is_not_json(upstream: ScriptedUpstream, stream: bool) -> None:
    upstream.reply(Reply("Hello", chunks=["Hel", "lo"], fault="malformed", after=1))
    received = post(upstream, {"stream": stream}).read().decode()
    if not stream:
        with pytest.raises(json.JSONDecodeError):
            json.loads(received)
        return
    frames = [frame.removeprefix("data: ") for frame in received.split("\n\n")]
    assert frames[2] == '{"id": "chatcmpl-scripted", "choices": [{"delta": {"content": "bro'
    contents = [json.loads(f)["choices"][0]["delta"] for i, f in enumerate(frames[:5]) if i != 2]
    assert contents == [OPENING, {"content": "Hel"}, {"content": "lo"}, {}]
    assert frames[5:] == ["[DONE]", ""]


def test_an_error_event_ends_the_stream(upstream: ScriptedUpstream, direct: openai.OpenAI) -> None:
    upstream.reply(Reply("Hello", chunks=1, fault="error_event", after=2))
    seen = []
    stream = direct.chat.completions.create(model="m", messages=USER, stream=True)
    with pytest.raises(openai.APIError) as caught:
        seen.extend(event.choices[0].delta.content for event in stream)
    assert seen == ["", "H", "e"]
    assert caught.value.body == dict(ERROR_EVENT)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_a_silent_reply_is_noticed(
    upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(Reply("Hello", chunks=1, fault="silent", after=2))
    response = post(upstream, {"stream": stream})
    exchange = upstream.exchanges[0]
    if stream:
        received = b""
        while b'"e"' not in received:
            received += response.read1()
    assert not exchange.aborted.is_set()
    assert not exchange.ended.is_set()
    response.close()
    assert exchange.ended.wait(30)
    assert (exchange.aborted.is_set(), exchange.sent) == (True, 2 if stream else 0)
    assert upstream.aborted.is_set()


def test_a_first_delay_comes_before_the_status_line(upstream: ScriptedUpstream) -> None:
    upstream.reply(Reply("Hello", first_delay=3600))
    connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=0.2)
    connection.request("POST", "/v1/chat/completions", '{"stream": true}')
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    assert upstream.aborted.wait(30)


def test_a_client_that_leaves_in_a_pause_is_noticed(
    upstream: ScriptedUpstream, direct: openai.OpenAI
) -> None:
    upstream.reply(Reply("Hello", chunks=1, delay=3600))
    with direct.chat.completions.create(model="m", messages=USER, stream=True) as stream:
        assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "H"]
    assert upstream.aborted.wait(30)
    assert upstream.exchanges[0].sent == 1


def test_a_client_that_stays_is_not_taken_for_one_that_left(
    upstream: ScriptedUpstream, direct: openai.OpenAI
) -> None:
    upstream.reply(Reply("Hello", chunks=1, delay=0.01, first_delay=0.01))
    deltas(direct)
    assert upstream.exchanges[0].ended.wait(30)
    assert not upstream.aborted.is_set()
    assert upstream.exchanges[0].sent == 5


def test_closing_the_upstream_ends_its_replies_and_blames_no_client() -> None:
    with ScriptedUpstream() as upstream:
        upstream.reply(Reply("Hello", fault="silent"))
        response = post(upstream, {"stream": True})
    assert upstream.exchanges[0].ended.wait(30)
    assert not upstream.aborted.is_set()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()


def test_frames_are_sent_byte_for_byte(upstream: ScriptedUpstream) -> None:
    frames = [b": comment\r\n\r\n", b"data:{}\r", b"\ndata:\xff\n\n"]
    upstream.reply(Reply(frames=frames))
    assert post(upstream, {"stream": True}).read() == b"".join(frames)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fault": "flood"}, "fault='flood': expected one of"),
        ({"chunks": 0}, "chunks=0: a delta holds at least 1 character"),
        ({"chunks": "Hello"}, "chunks is a str"),
        ({"text": "Hello", "chunks": ["Hel", "p"]}, "text='Hello' is not what its chunks join"),
    ],
)
def test_a_reply_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Reply(**fields)


@pytest.mark.parametrize("body", ["[]", "{"])
def test_a_request_that_is_no_json_object_is_answered_400(
    upstream: ScriptedUpstream, body: str
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", body)
    assert connection.getresponse().status == 400


def test_the_command_line_answers_in_turn() -> None:
    script = Path(__file__).with_name("scripted.py")
    command = [sys.executable, str(script), "--port", "0", "--reply", "one", "--reply", "two"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            announced = re.match(r"Answering on (\S+);", server.stdout.readline())
            assert announced is not None
            client = openai.OpenAI(base_url=announced[1], api_key="key", max_retries=0)
            answers = [
                client.chat.completions.create(model="m", messages=USER).choices[0].message.content
                for _ in range(3)
            ]
        finally:
            server.terminate()
    assert answers == ["one", "two", "one"]


def test_a_served_app_streams_and_sees_its_client_leave() -> None:
    """The other tests rely on both: pieces arrive as they are made, and a closed client shows."""
    closed = threading.Event()

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            while True:
                yield b"piece"
        finally:
            closed.set()

    with serve(app) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.read(10) == b"piecepiece"
        response.close()
        connection.close()
        assert closed.wait(30)
