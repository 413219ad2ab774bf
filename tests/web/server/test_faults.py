"""Faults around the proxy, and the errors that its client sees: the table of docs/reliability.md, tested.

A real server process in front of an upstream that fails on request; `make test-faults` runs all of it.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import connect, fetch, post_bytes, send
from tests.support.scripted import DONE, OK, Body, Reply, ScriptedUpstream, delta, sse
from tests.support.three_apis import APIS, PATHS, ask, request_body
from tests.support.tools import GET_WEATHER

pytestmark = pytest.mark.faults

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
QUICK = ("--upstream-seconds", "1", "--upstream-retries", "0", "--answer-seconds", "20")
BOUNDED = ("--ping-seconds", "3", "--database", ":memory:")
HANG = "hang before the head"
PLACES = ("--threads", "8", "--upstream-requests", "8")

HELLO = delta("Hello there")
HTML = b"<html><body>It works!</body></html>"
LIMITED = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
BROKEN = sse({"error": {"message": "it broke"}})


def response(status: int, body: bytes, header: str) -> tuple[bytes, bytes]:
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{header}\r\n\r\n"
    return head.encode(), body


# What the upstream writes, by the request's model; one that hangs keeps the connection open.
WRITTEN: dict[str, Iterable[bytes]] = {
    "good": (OK, HELLO, delta(finish="stop"), DONE),
    "hang before the head": (),
    "hang within the head": (b"HTTP/1.1 200 OK\r\ncontent-",),
    "hang in the stream": (OK, HELLO),
    "close at once": (),
    "close in the stream": (OK, HELLO),
    "close within an event": (OK, HELLO, b'data: {"choi'),
    "garbage for a head": (b"\x00\xff\x16\x03 nonsense\r\n\r\n",),
    "garbage for events": (OK, b"\x00\x01\x02 what?\n\n" * 5),
    "invalid UTF-8": (OK, b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n'),
    "truncated JSON": (OK, b'data: {"choices": [{"del\n\n'),
    "html": response(200, HTML, "content-type: text/html"),
    "html with 502": response(502, HTML, "content-type: text/html"),
    "an error object": (OK, BROKEN),
    "an error in the stream": (OK, HELLO, BROKEN),
    "empty choices": (OK, sse({"choices": []}), DONE),
    "a duplicate finish": (OK, HELLO, delta(finish="stop"), delta(finish="stop"), DONE),
    "no [DONE]": (OK, HELLO, delta(finish="stop")),
    "429": response(429, json.dumps(LIMITED).encode(), "retry-after: 7"),
    "one huge event": (OK, b"data: ", *[b"x" * 2**20] * 100),
    "endless": (OK, *[delta("more and more ") * 50] * 10**6),
}

# What the client sees: the status without a stream, and how a stream ends that has begun.
SEEN: dict[str, tuple[int, str]] = {
    "good": (200, "[DONE]"),
    "hang before the head": (504, "504"),
    "hang within the head": (504, "504"),
    "hang in the stream": (504, "error"),
    "close at once": (502, "502"),
    "close in the stream": (502, "error"),
    "close within an event": (502, "error"),
    "garbage for a head": (502, "502"),
    "garbage for events": (502, "error"),
    "invalid UTF-8": (502, "error"),
    "truncated JSON": (502, "error"),
    "html": (502, "error"),
    "html with 502": (502, "502"),
    "an error object": (502, "error"),
    "an error in the stream": (502, "error"),
    "empty choices": (502, "error"),
    "a duplicate finish": (200, "[DONE]"),
    "no [DONE]": (200, "[DONE]"),
    "429": (429, "429"),
    "one huge event": (502, "error"),
    "endless": (200, "[DONE]"),
}


def bad_upstream() -> ScriptedUpstream:
    def reply(body: Body) -> Reply:
        name = body["model"]
        return Reply(raw=WRITTEN[name], fault="silent" if name.startswith("hang") else None)

    return ScriptedUpstream(default=reply)


def open_answers(upstream: ScriptedUpstream) -> int:
    return sum(not exchange.ended.is_set() for exchange in upstream.exchanges)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedUpstream, str]]:
    log = tmp_path_factory.mktemp("faults") / "log"
    with (
        bad_upstream() as upstream,
        proxy(upstream.base_url, log, *QUICK, *BOUNDED) as (_, url),
    ):
        yield upstream, url


def request(model: str, *, stream: bool, tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "stream": stream}
    body["messages"] = [{"role": "user", "content": "Hi"}]
    return body | ({"tools": [GET_WEATHER]} if tools else {})


def stream_of(url: str, body: dict[str, Any]) -> str:
    """The status if it is an error, or else what the stream's last event is."""
    status, _, answer = fetch(f"{url}/v1/chat/completions", body)
    if status != 200:
        return str(status)
    [*_, last] = re.findall(rb"data: (.*)", answer)
    return "[DONE]" if last.strip() == b"[DONE]" else "error" if b'"error"' in last else "nothing"


@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
@pytest.mark.parametrize("fault", SEEN)
def test_each_upstream_fault_is_reported_as_the_page_says(
    running: tuple[ScriptedUpstream, str], fault: str, tools: bool
) -> None:
    upstream, url = running
    status, end = SEEN[fault]
    answered, headers, body = send(
        f"{url}/v1/chat/completions", request(fault, stream=False, tools=tools)
    )
    assert answered == status, body
    if status != 200:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    if fault == "429":
        assert (headers["retry-after"], headers["x-should-retry"]) == ("7", "false")
    assert stream_of(url, request(fault, stream=True, tools=tools)) == end
    wait_until(lambda: open_answers(upstream) == 0)
    assert send(f"{url}/v1/chat/completions", request("good", stream=False, tools=tools))[0] == 200


def test_every_upstream_fault_is_tested_and_on_the_page() -> None:
    assert set(SEEN) == set(WRITTEN)
    page = PAGE.read_text()
    for result in {*SEEN.values()}:
        faults = [fault for fault, seen in SEEN.items() if seen == result and fault != "good"]
        assert f"| {'; '.join(faults)} | {result[0]} | {result[1]} |" in page


def test_a_client_that_disconnects_ends_the_upstreams_call(
    running: tuple[ScriptedUpstream, str],
) -> None:
    upstream, url = running
    body = request("endless", stream=True, tools=False)
    with connect(url, post_bytes("/v1/chat/completions", body)) as connection:
        assert connection.recv(10)
    wait_until(lambda: open_answers(upstream) == 0)


@pytest.mark.parametrize("api", [*APIS, "completions"])
def test_disconnected_clients_occupy_no_threads(tmp_path: Path, api: Any) -> None:
    """With 8 threads, 8 clients that left before the upstream's head used to make the ninth a 503."""
    with (
        bad_upstream() as upstream,
        proxy(
            upstream.base_url, tmp_path / "log", "--threads", "8", "--upstream-requests", "8"
        ) as (_, url),
    ):
        for stream in (False, True):
            body = {"model": HANG, "prompt": "Hi", "stream": stream}
            if api in PATHS:
                body = request_body(api, None, stream=stream, model=HANG)
            path = PATHS.get(api, "/v1/completions")
            begun = len(upstream.requests)
            with ExitStack() as clients:
                for _ in range(8):
                    clients.enter_context(connect(url, post_bytes(path, body)))
                wait_until(lambda: len(upstream.requests) == begun + 8)  # noqa: B023
            wait_until(lambda: open_answers(upstream) == 0)
            good = request("good", stream=stream, tools=False)
            wait_until(lambda: fetch(f"{url}/v1/chat/completions", good)[0] == 200)  # noqa: B023


def test_a_model_that_hangs_in_its_probe_is_emulated(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """After the 20 s of `tools = auto`, instead of after `upstream_seconds`."""
    url = start_proxy(tools="auto", upstream_seconds=3600.0, answer_seconds=3600.0)
    upstream.reply(Reply(first_delay=3600), "Hello.")
    body = request("m", stream=False, tools=True)
    assert send(f"{url}/v1/chat/completions", body)[0] == 200
    assert ["tools" in asked for asked in upstream.requests] == [True, False]


def test_a_damaged_database_ends_programs_but_not_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy starts, says so in its log, and answers; the damaged file stays for inspection."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = tmp_path / "tool-use-api-emulator" / "emulator.sqlite"
    store.parent.mkdir()
    store.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8192)
    with (
        bad_upstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log") as (process, url),
    ):
        for tools in (False, True):
            body = request("good", stream=False, tools=tools)
            assert send(f"{url}/v1/chat/completions", body)[0] == 200
        assert send(f"{url}/v1/responses/resp_none")[0] == 404
        assert "nothing is stored: the state folder cannot be used" in process.output
    assert store.read_bytes().startswith(b"SQLite format 3\x00\xff")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("tool", [None, GET_WEATHER], ids=["no tools", "tools"])
def test_a_shutdown_ends_slow_requests_with_an_error_of_their_protocol(
    tmp_path: Path, tool: Any, stream: bool
) -> None:
    options = ("--drain-seconds", "1")
    with (
        bad_upstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", *options) as (process, url),
        ThreadPoolExecutor(len(APIS)) as clients,
    ):
        asked = [
            clients.submit(ask, url, api, tool, stream=stream, model="hang in the stream")
            for api in APIS
        ]
        wait_until(lambda: len(upstream.requests) == len(APIS))
        process.kill(signal.SIGTERM)
        for answer in asked:
            outcome = answer.result(60)
            assert "shutting down" in outcome.error
            assert outcome.status == (200 if stream else 503)
