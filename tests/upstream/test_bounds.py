"""What an upstream may do to an answer: take time, talk on, send garbage. Each has its end and its status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TOOLS = pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])


def body(tools: list[Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": HELLO, **({"tools": tools} if tools else {}), **fields}


@TOOLS
def test_an_upstream_that_drips_has_a_deadline_though_it_is_never_silent(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: list[Any]
) -> None:
    proxy = start_proxy(answer_seconds=0.5)
    upstream.reply(Reply(text="drip " * 4000, chunks=5, delay=0.05))
    status, headers, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert (status, answer["error"]["code"]) == (504, "answer_timeout")
    assert "answer_seconds" in answer["error"]["message"]
    assert headers["x-should-retry"] == "false"
    assert upstream.exchanges[-1].aborted.wait(10)


def test_comments_are_no_answer(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    proxy = start_proxy(answer_seconds=0.2)
    upstream.reply(Reply(frames=[b": ping\n\n"] * 4000, delay=0.05))
    assert send(f"{proxy}/v1/chat/completions", body([]))[0] == 504


def test_repairs_have_no_time_of_their_own(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The deadline is the answer's, not the turn's: a model that is wrong slowly is not asked for ever."""
    proxy = start_proxy(answer_seconds=1, repair_attempts=10)
    upstream.default = Reply("```python\nget_weather(town=1)\n```", first_delay=0.3)
    assert send(f"{proxy}/v1/chat/completions", body([GET_WEATHER]))[0] == 504
    assert 1 < len(upstream.requests) < 10


@TOOLS
@pytest.mark.parametrize("field", ["text", "reasoning"])
def test_a_reply_without_end_is_cut_off(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: list[Any], field: str
) -> None:
    proxy = start_proxy(max_reply_chars=1024)
    upstream.reply(Reply(**{field: "more and " * 100_000}, chunks=90))
    status, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert status == 200
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    # Of 900,000 characters; what comes in one read is told as one.
    assert len(json.dumps(choice["message"])) < 50_000
    assert upstream.exchanges[-1].aborted.wait(10)


GARBAGE: list[Any] = [
    [],
    "text",
    None,
    {"choices": {"index": 0}},
    {"choices": [1]},
    {"choices": [{"delta": "text"}]},
    {"choices": [{"delta": {"content": 5}}]},
    {"choices": [{"delta": {"content": ["a"]}}]},
    {"choices": [{"delta": {"reasoning_content": {}}}]},
    {"choices": [{"delta": {}, "finish_reason": 3}]},
    {"choices": [], "usage": "much"},
    {"choices": [], "usage": {"prompt_tokens": "many"}},
    {"choices": [], "usage": {"completion_tokens": [1]}},
]


@TOOLS
@pytest.mark.parametrize("event", GARBAGE, ids=json.dumps)
def test_garbage_is_the_upstreams_fault(
    proxy: str, upstream: ScriptedUpstream, tools: list[Any], event: Any
) -> None:
    frame = b"data: " + json.dumps(event).encode() + b"\n\n"
    upstream.reply(Reply(frames=[frame, b"data: [DONE]\n\n"]))
    status, _, answer = send(f"{proxy}/v1/chat/completions", body(tools))
    assert (status, answer["error"]["type"]) == (502, "upstream_error")
