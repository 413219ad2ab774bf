"""What goes wrong around the proxy, and what its client sees: the table of docs/reliability.md, tried.

A real server process in front of an upstream that fails as it is told; `make test-faults` runs all of it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_upstream import BEHAVIOURS, BadUpstream
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import send
from tests.support.tools import GET_WEATHER

pytestmark = pytest.mark.faults

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
QUICK = ("--upstream-seconds", "1", "--upstream-retries", "0", "--answer-seconds", "20")
BOUNDED = ("--max-reply-chars", "20000", "--ping-seconds", "3", "--store", ":memory:")

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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BadUpstream, str]]:
    log = tmp_path_factory.mktemp("faults") / "log"
    with BadUpstream() as upstream, proxy(upstream.base_url, log, *QUICK, *BOUNDED) as (_, url):
        yield upstream, url


def request(model: str, *, stream: bool, tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "stream": stream}
    body["messages"] = [{"role": "user", "content": "Hi"}]
    return body | ({"tools": [GET_WEATHER]} if tools else {})


def stream_of(url: str, body: dict[str, Any]) -> str:
    """The status if it is an error, or else what the stream's last event is."""
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.0\r\nhost: {host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    status = answer.split()[1].decode()
    if status != "200":
        return status
    [*_, last] = re.findall(rb"data: (.*)", answer)
    return "[DONE]" if last.strip() == b"[DONE]" else "error" if b'"error"' in last else "nothing"


@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
@pytest.mark.parametrize("fault", SEEN)
def test_an_upstreams_fault_is_told_as_what_it_is(
    running: tuple[BadUpstream, str], fault: str, tools: bool
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
    wait_until(lambda: upstream.open == 0)
    assert send(f"{url}/v1/chat/completions", request("good", stream=False, tools=tools))[0] == 200


def test_every_fault_of_the_upstream_is_tried_and_in_the_page() -> None:
    assert set(SEEN) == set(BEHAVIOURS)
    page = PAGE.read_text()
    for fault, (status, end) in SEEN.items():
        if fault != "good":
            assert f"| {fault} | {status} | {end} |" in page


def test_a_client_that_leaves_ends_the_upstreams_call(running: tuple[BadUpstream, str]) -> None:
    upstream, url = running
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(request("endless", stream=True, tools=False)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head + data)
        assert connection.recv(10)
    wait_until(lambda: upstream.open == 0)


def test_a_damaged_store_costs_the_programs_and_not_the_service(tmp_path: Path) -> None:
    """The proxy starts, says so in its log, and answers; the damaged file stays for whoever looks into it."""
    store = tmp_path / "programs.sqlite"
    store.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8192)
    with (
        BadUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", "--store", str(store)) as (process, url),
    ):
        for tools in (False, True):
            body = request("good", stream=False, tools=tools)
            assert send(f"{url}/v1/chat/completions", body)[0] == 200
        assert send(f"{url}/v1/responses/resp_none")[0] == 404
        assert "store off" in process.output
    assert store.read_bytes().startswith(b"SQLite format 3\x00\xff")
