"""Limits of an upstream: slow, endless and malformed replies end, each with its own status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.upstream.interface import MAX_REPLY_CHARS
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TOOLS = pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])


def body(tools: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": HELLO, **({"tools": tools} if tools else {}), **fields}


@TOOLS
def test_a_slow_upstream_has_a_deadline_although_it_never_falls_silent(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: list[Any]
) -> None:
    proxy = start_proxy(answer_seconds=0.5)
    upstream.reply(Reply(text="drip " * 4000, chunks=5, delay=0.05))
    status, headers, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert (status, answer["error"]["code"]) == (504, "answer_timeout")
    assert "answer_seconds" in answer["error"]["message"]
    assert headers["x-should-retry"] == "false"
    assert upstream.exchanges[-1].aborted.wait(10)


def test_comments_do_not_extend_the_deadline(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(answer_seconds=0.2)
    upstream.reply(Reply(frames=[b": ping\n\n"] * 4000, delay=0.05))
    assert send(f"{proxy}/v1/chat/completions", body([]))[0] == 504


SILENCE = [
    b": ping\n\n",
    b'data: {"choices": [{"index": 0, "delta": {}}]}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}\n\n',
    b'data: {"choices": []}\n\n',
]


@TOOLS
@pytest.mark.parametrize("words", [[], ["Hello"]], ids=["at the beginning", "after a word"])
@pytest.mark.parametrize("event", SILENCE)
def test_what_has_no_output_is_silence(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    tools: list[Any],
    words: list[str],
    event: bytes,
) -> None:
    """Comments and empty events were followed for `answer_seconds`, which is an hour."""
    proxy = start_proxy(upstream_seconds=0.3)
    chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}}]}
    begin = [b"data: %s\n\n" % json.dumps(chunk).encode() for _ in words]
    upstream.reply(Reply(frames=[*begin, *[event] * 4000], delay=0.05))
    status, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert status == 504
    assert "fell silent" in answer["error"]["message"]
    assert upstream.exchanges[-1].aborted.wait(10)


def test_repairs_share_the_answers_deadline(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """A model that is slow and wrong used to be asked again without end."""
    proxy = start_proxy(answer_seconds=1, repair_attempts=10)
    for town in range(10):
        upstream.reply(Reply(f"```tool_code\nget_weather(town={town})\n```", first_delay=0.3))
    asked = body([GET_WEATHER], tool_choice="required")
    assert send(f"{proxy}/v1/chat/completions", asked)[0] == 504
    assert 1 < len(upstream.requests) < 10


@TOOLS
@pytest.mark.parametrize("field", ["text", "reasoning"])
def test_an_endless_reply_is_truncated(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: list[Any], field: str
) -> None:
    proxy = start_proxy()
    upstream.reply(Reply(**{field: "more and " * 300_000}, chunks=270))
    status, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert status == 200
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    # Of 2,700,000 characters; the text of one read is not split.
    assert len(json.dumps(choice["message"])) < MAX_REPLY_CHARS + 50_000
    assert upstream.exchanges[-1].aborted.wait(10)


GARBAGE: list[Any] = [
    [],
    "text",
    None,
    {"choices": {"index": 0}},
    {"choices": [1]},
    {"choices": [{"delta": "text"}]},
    {"choices": [{"delta": {"content": 5}}]},
    {"choices": [{"delta": {"reasoning_content": {}}}]},
    {"choices": [{"delta": {}, "finish_reason": 3}]},
]


@TOOLS
@pytest.mark.parametrize("event", GARBAGE, ids=json.dumps)
def test_a_malformed_event_is_the_upstreams_fault(
    proxy: str, upstream: ScriptedUpstream, tools: list[Any], event: Any
) -> None:
    frame = b"data: " + json.dumps(event).encode() + b"\n\n"
    upstream.reply(Reply(frames=[frame, b"data: [DONE]\n\n"]))
    status, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert (status, answer["error"]["type"]) == (502, "upstream_error")


@TOOLS
@pytest.mark.parametrize(("code", "status"), [(500, 502), (503, 503), (429, 429), (200, 502)])
def test_an_error_object_says_what_failed_and_never_that_the_proxy_did(
    proxy: str, upstream: ScriptedUpstream, tools: list[Any], code: int, status: int
) -> None:
    error = json.dumps({"error": {"message": "it broke", "code": code}}).encode()
    upstream.default = Reply(frames=[b"data: " + error + b"\n\n"])
    answered, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert answered == status
    assert "it broke" in answer["error"]["message"]
