"""One line a request, when its response has left: for people at a terminal, JSON elsewhere."""

from __future__ import annotations

import errno
import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import structlog

from emulator.core import logs
from emulator.core.client_keys import entry
from tests.conftest import StartProxy
from tests.support.other_endpoints import other_endpoints
from tests.support.processes import wait_until
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
CHAT: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}


class Log(io.StringIO):
    def lines(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in found if line["event"] == "request"]


@pytest.fixture
def log() -> Iterator[Log]:
    told = Log()
    logs.configure("info", told)
    yield told
    logs.configure("warning")


def the_line(log: Log) -> dict[str, Any]:
    wait_until(lambda: bool(log.lines()))
    [line] = log.lines()
    return {
        name: value for name, value in line.items() if name not in ("timestamp", "level", "event")
    }


def test_a_line_shows_the_outcome_of_an_answer_and_its_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path, log: Log
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(entry("alice", "secret-key"))
    url = start_proxy(client_keys_file=str(keys))
    upstream.reply("```tool_code\nget_weather(\n```", "```tool_code\nget_weather()\n```")
    path, headers = f"{url}/v1/chat/completions", {"authorization": "Bearer secret-key"}
    _, answered, _ = send(path, {**CHAT, "tools": [WEATHER]}, headers)
    line = the_line(log)
    assert line.pop("ms") >= line.pop("first_ms") > 0
    assert line == {
        "request_id": answered["x-request-id"],
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "model": "small",
        "client": "alice",
        "upstream": "upstream",
        "state": "called",
        "calls": 1,
        "notes": ["repaired"],
        "repairs": 1,
        "turns": 2,
        "turns_saved": 0,
        "tokens_in": 14,
        "tokens_out": 6,
    }
    assert "secret-key" not in log.getvalue()


def test_a_stream_is_logged_at_its_end_with_a_disconnected_client_as_left(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: Log
) -> None:
    url = start_proxy(ping_seconds=0.1)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
    upstream.reply(Reply(chunks=["a", "b"], fault="silent", after=2))
    stream = client.chat.completions.create(**CHAT, stream=True)
    next(stream)
    assert log.lines() == []
    stream.close()
    line = the_line(log)
    assert (line["state"], line["status"], line["calls"]) == ("left", 200, 0)


def test_other_requests_have_a_line_too_and_refusals_their_reason(
    start_proxy: StartProxy, log: Log
) -> None:
    url = start_proxy()
    send(f"{url}/healthz")
    assert the_line(log).items() >= {"method": "GET", "path": "/healthz", "status": 200}.items()
    send(f"{url}/v1/chat/completions", {**CHAT, "messages": []})
    wait_until(lambda: len(log.lines()) == 2)
    assert log.lines()[1].items() >= {"status": 400, "state": "failed", "calls": 0}.items()


@pytest.mark.parametrize(
    ("settings", "headers", "body", "status", "code"),
    [
        ({"client_keys": ("a",)}, {"authorization": "Bearer b"}, CHAT, 401, "invalid_api_key"),
        ({"requests_per_minute": 1}, {}, CHAT, 429, "rate_limit_exceeded"),
        ({}, {"origin": "https://evil.example"}, CHAT, 403, "origin_not_allowed"),
        ({}, {"host": "evil.example"}, CHAT, 403, "host_not_allowed"),
        ({}, {"content-type": "text/plain"}, CHAT, 415, "unsupported_media_type"),
    ],
)
def test_a_refusal_before_a_route_has_its_code_in_the_log_and_in_the_inspector(
    start_app: Callable[..., tuple[str, Any]],
    upstream: ScriptedUpstream,
    log: Log,
    settings: dict[str, Any],
    headers: dict[str, str],
    body: Any,
    status: int,
    code: str,
) -> None:
    """Operators who asked why a client got a 429 found neither a row nor a reason."""
    url, services = start_app(**settings)
    upstream.default = Reply("Hi.")
    if status == 429:
        assert send(f"{url}/v1/chat/completions", body, headers=headers)[0] == 200
    got, _, told = send(f"{url}/v1/chat/completions", body, headers=headers)
    assert (got, told["error"]["code"]) == (status, code)
    wait_until(lambda: any(line.get("code") == code for line in log.lines()))
    assert log.lines()[-1]["status"] == status
    row = services.requests.reader.page({}, None).rows[0]
    assert (row.status, row.code) == (status, code)


ANSWER = {
    "event": "request",
    "timestamp": "2027-01-01T12:34:56.7Z",
    "status": 200,
    "method": "POST",
    "path": "/v1/chat/completions",
    "model": "small",
    "client": "alice",
    "state": "called",
    "calls": 2,
    "repairs": 1,
    "turns_saved": 0,
    "tokens_in": 812,
    "tokens_out": 45,
    "ms": 1234.5,
}
BEGIN = "12:34:56 200 POST /v1/chat/completions small"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, f"{BEGIN} for alice: 2 calls, 1 repair; 812 + 45 tokens; 1.23 s"),
        (
            {"calls": 0, "repairs": 0, "tokens_estimated": True},
            f"{BEGIN} for alice: about 812 + 45 tokens; 1.23 s",
        ),
        (
            {"client": "", "calls": 0, "repairs": 0, "turns_saved": 1, "tokens_in": 0, "tokens_out": 0},
            f"{BEGIN}: 1 turn saved; 1.23 s",
        ),
        (
            {"calls": 0, "repairs": 0, "offered": 3},
            f"{BEGIN} for alice: 3 tools offered, none called; 812 + 45 tokens; 1.23 s",
        ),
        (
            {"state": "left", "calls": 0, "repairs": 2, "ms": 12.3},
            f"{BEGIN} for alice: the client disconnected, 2 repairs; 812 + 45 tokens; 12 ms",
        ),
        (
            {"state": "failed", "status": 503, "code": "upstream_down", "calls": 0, "repairs": 0},
            f"{BEGIN.replace('200', '503')} for alice: failed, upstream_down; 812 + 45 tokens; 1.23 s",
        ),
    ],
)  # fmt: skip
def test_at_a_terminal_a_request_is_a_line_for_people(fields: dict[str, Any], line: str) -> None:
    assert logs.request_line({**ANSWER, **fields}) == line


def test_at_a_terminal_a_clients_values_cannot_forge_a_line(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    logs.configure("info", screen)
    try:
        url = start_proxy()
        upstream.reply("Hello.")
        send(f"{url}/v1/chat/completions", {**CHAT, "model": "a\n12:00:00 200 POST \x1b[2J"})
        wait_until(lambda: "12:00:00" in screen.getvalue())
    finally:
        logs.configure("warning")
    [line] = screen.getvalue().splitlines()
    assert r"POST /v1/chat/completions a\n12:00:00 200 POST \x1b[2J: 7 + 3 tokens" in line


@pytest.mark.parametrize(
    ("reply", "came"),
    [
        (Reply("Hello."), {"state": "answered", "status": 200}),
        ("```tool_code\nget_weather()\n```", {"state": "called", "calls": 1}),
        (
            Reply(status=400, body={"error": {"message": "too long", "code": "too_long"}}),
            {"state": "failed", "code": "too_long", "status": 200},
        ),
    ],
)
def test_a_response_made_in_the_background_has_its_line_at_its_own_end(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: Log, reply: Any, came: dict[str, Any]
) -> None:
    may_answer = threading.Event()

    def answer(_: dict[str, Any]) -> Any:
        may_answer.wait()
        return reply

    url = start_proxy(database=":memory:", upstream_retries=0)
    upstream.reply(answer)
    tool = {"type": "function", "name": "get_weather", "parameters": {}}
    asked = {"model": "small", "input": "Hi", "background": True, "tools": [tool]}
    assert send(f"{url}/v1/responses", asked)[0] == 200
    # Another request has its line, and this one none yet.
    send(f"{url}/v1/files")
    wait_until(lambda: bool(log.lines()))
    assert [line["path"] for line in log.lines()] == ["/v1/files"]
    may_answer.set()
    wait_until(lambda: len(log.lines()) == 2)
    line = log.lines()[1]
    assert line.items() >= came.items()
    assert line["path"] == "/v1/responses"


def test_a_cancelled_background_response_is_logged_as_left(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: Log
) -> None:
    url = start_proxy(database=":memory:")
    upstream.reply(Reply(chunks=["Hello", "x"], fault="silent", after=1))
    asked = {"model": "small", "input": "Hi", "background": True}
    _, _, queued = send(f"{url}/v1/responses", asked)
    send(f"{url}/v1/responses/{queued['id']}/cancel", {})
    wait_until(lambda: len(log.lines()) == 2)
    assert {line["path"]: line.get("state") for line in log.lines()}["/v1/responses"] == "left"


def test_a_passed_through_request_is_logged_with_its_upstream_and_tokens(
    start_proxy: StartProxy, log: Log
) -> None:
    with other_endpoints() as other:
        url = start_proxy(base_url=other.base_url, upstream_retries=0)
        send(f"{url}/v1/embeddings", {"model": "e", "input": "Hi"})
        line = the_line(log)
    assert line.pop("ms") >= line.pop("first_ms") > 0
    assert line.pop("request_id")
    assert line == {
        "method": "POST",
        "path": "/v1/embeddings",
        "status": 200,
        "model": "e",
        "upstream": "upstream",
        "state": "answered",
        "tokens_in": 1,
        "tokens_out": 0,
    }


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError(), ValueError("closed")],
)
def test_a_log_continues_once_it_can_be_written_again(fault: Exception) -> None:
    """Nothing raises meanwhile: that ended a thread that renews leases."""
    stream = FailingStream()
    logs.configure("info", stream)
    try:
        for stream.fault in (fault, None):
            structlog.get_logger().warning("a lease was lost", fault=str(stream.fault))
    finally:
        logs.configure("warning")
    [line] = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["fault"]) == ("a lease was lost", "None")


class FailingStream(io.StringIO):
    fault: Exception | None = None

    def write(self, text: str) -> int:
        if self.fault is not None:
            raise self.fault
        return super().write(text)
