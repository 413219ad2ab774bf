"""A client's disconnect ends all work for it alone: the upstream's answer, programs, cells.

No stream has anything to write here, and no ping comes in time: what ends, ends because the client was seen
to leave.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from app import create_app
from emulator.core.client_disconnect import ClientDisconnect
from emulator.settings.settings import Settings
from emulator.web.middleware.disconnects import Disconnects
from sandbox.engine import Limits
from sandbox.programs.server import ProgramServer
from tests.conftest import StartProxy
from tests.support.places import needs_bubblewrap
from tests.support.processes import wait_until
from tests.support.raw_http import connect, post_bytes, read_page, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve
from tests.support.three_apis import APIS, PATHS, Api, request_body
from tests.support.tools import GET_WEATHER

NEVER = {"ping_seconds": 3600.0, "upstream_seconds": 3600.0, "answer_seconds": 3600.0}
ASK = [{"role": "user", "content": "Hi"}]
SILENT = Reply(chunks=["Hello there", "x"], fault="silent", after=1)
CHAT = ("/v1/chat/completions", {"model": "m", "messages": ASK})
WITH_TOOLS = ("/v1/chat/completions", {"model": "m", "messages": ASK, "tools": [GET_WEATHER]})
RESPONSE = ("/v1/responses", {"model": "m", "input": "Hi"})
MESSAGE = ("/v1/messages", {"model": "m", "messages": ASK, "max_tokens": 99})


def asked(url: str, path: str, body: Any) -> socket.socket:
    """A connection on which a request has been sent; its client leaves at the end of the block."""
    return connect(url, post_bytes(path, body))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "asks",
    [CHAT, WITH_TOOLS, RESPONSE, MESSAGE],
    ids=["chat", "chat with tools", "response", "message"],
)
def test_the_upstreams_answer_ends_with_the_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, asks: tuple[str, Any], stream: bool
) -> None:
    upstream.reply(SILENT)
    url = start_proxy(**NEVER)
    path, body = asks
    with asked(url, path, {**body, "stream": stream}):
        wait_until(lambda: bool(upstream.exchanges and upstream.exchanges[0].sent))
    assert upstream.exchanges[0].aborted.wait(60)


BEFORE_THE_HEAD = Reply(first_delay=3600)
BUSY = Reply(status=503, headers={"retry-after": "50"})
UNUSABLE = Reply("```tool_code\nget_weather(town=1)\n```")
# Settings, and the replies until the client leaves.
WAITS: dict[str, tuple[dict[str, Any], list[Reply]]] = {
    "before the head": ({}, [BEFORE_THE_HEAD]),
    "in native mode": ({"tools": "native"}, [BEFORE_THE_HEAD]),
    "in a probe": ({"tools": "auto"}, [BEFORE_THE_HEAD]),
    "between retries": ({}, [BUSY]),
    "at a fallback": ({"fallbacks": "other", "upstream_retries": 0}, [BUSY, BEFORE_THE_HEAD]),
    "in a repair": ({}, [UNUSABLE, BEFORE_THE_HEAD]),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("wait", WAITS)
def test_a_request_that_waits_ends_with_its_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, wait: str, api: Api, stream: bool
) -> None:
    settings, replies = WAITS[wait]
    upstream.reply(*replies)
    url = start_proxy(**{**NEVER, **settings})
    before = open_requests(url)  # of the whole process: other tests' clients may have left some
    with asked(url, PATHS[api], request_body(api, GET_WEATHER, stream=stream)):
        wait_until(lambda: len(upstream.exchanges) >= len(replies))
    if replies[-1] is BEFORE_THE_HEAD:
        assert upstream.exchanges[-1].aborted.wait(60)
    wait_until(lambda: open_requests(url) <= before)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_request_that_waits_for_an_upstream_slot_ends_with_its_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.reply(BEFORE_THE_HEAD, "Hello.")
    url = start_proxy(**NEVER, upstream_requests=1)
    before = open_requests(url)
    with asked(url, *CHAT):
        wait_until(lambda: upstream.exchanges)
        with asked(url, path, {**CHAT[1], "prompt": "Hi"}):
            wait_until(lambda: open_requests(url) >= before + 2)
        wait_until(lambda: open_requests(url) <= before + 1)
    assert send(f"{url}{CHAT[0]}", CHAT[1])[0] == 200


def test_a_request_that_waits_for_the_probe_of_another_ends_with_its_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(BEFORE_THE_HEAD)
    url = start_proxy(**NEVER, tools="auto")
    before = open_requests(url)
    with asked(url, *WITH_TOOLS):
        wait_until(lambda: upstream.exchanges)
        with asked(url, *WITH_TOOLS):
            wait_until(lambda: open_requests(url) >= before + 2)
        wait_until(lambda: open_requests(url) <= before + 1)
    assert len(upstream.exchanges) == 1


EVERY_WAY = [
    *(
        pytest.param(PATHS[api], request_body(api, GET_WEATHER, stream=stream), mode,
                     id=f"{api}-{'stream' if stream else 'whole'}-{mode}")
        for api in APIS for stream in (False, True) for mode in ("emulate", "native")
    ),
    pytest.param("/v1/completions", {"model": "m", "prompt": "Hi"}, "emulate", id="passed on"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "mode"), EVERY_WAY)
@pytest.mark.parametrize("wait", ["connection", "handshake", "sending"])
def test_a_request_ends_with_its_client_before_it_is_sent(
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    wait: str,
    path: str,
    body: Any,
    mode: str,
) -> None:
    """The upstream accepts no connection, says nothing in the TLS handshake, or reads nothing."""
    monkeypatch.setattr("emulator.upstream.client._CONNECT_SECONDS", 3600)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        port = server.getsockname()[1]
        scheme = "https" if wait == "handshake" else "http"
        url = start_proxy(
            **NEVER,
            base_url=f"{scheme}://127.0.0.1:{port}/v1",
            tools=mode,
        )
        before = open_requests(url)
        if wait == "connection":
            stack.enter_context(socket.create_connection(server.getsockname()))  # the queue is full
        with asked(url, path, {**body, "user": "x" * (10_000_000 * (wait == "sending"))}):
            if wait == "connection":
                wait_until(lambda: "02" in dict(connections_to(port)))  # SYN_SENT
            else:
                taken = stack.enter_context(server.accept()[0])
                taken.recv(1, socket.MSG_PEEK)
        wait_until(lambda: open_requests(url) <= before)


HEADS = {
    "connection: close": b"HTTP/1.1 200 OK\r\nconnection: close\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n",
}


@pytest.mark.parametrize(("path", "body", "mode"), EVERY_WAY)
@pytest.mark.parametrize("head", HEADS)
def test_an_answer_that_only_its_connection_ends_ends_with_its_client(
    start_proxy: StartProxy, head: str, path: str, body: Any, mode: str
) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
    event = f"content-type: text/event-stream\r\n\r\ndata: {json.dumps(chunk)}\n\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = start_proxy(**NEVER, base_url=f"http://127.0.0.1:{port}/v1", tools=mode)
        with asked(url, path, body):
            taken, _ = server.accept()
            read_until(taken, b"}")
            taken.sendall(HEADS[head] + event.encode())
            wait_until(lambda: ("01", 0) in connections_to(port))  # the proxy has read all of it
        with taken:
            taken.settimeout(60)
            while taken.recv(65536):
                pass  # the rest of the request


def connections_to(port: int) -> list[tuple[str, int]]:
    """The states of this machine's TCP connections to ``port`` (proc(5)), and the bytes to be read there."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        (row[3], int(row[4].partition(":")[2], 16))
        for row in rows
        if row[2].endswith(f":{port:04X}")
    ]


def open_requests(url: str) -> float:
    """Requests being served, without the one that asks."""
    page = read_page(f"{url}/metrics")
    [count] = re.findall(r"^emulator_open_requests (\S+)$", page, re.MULTILINE)
    return float(count)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_program_ends_with_the_client(upstream: ScriptedUpstream, stream: bool) -> None:
    """One program runs at a time: the next finds its slot free."""
    upstream.reply("```tool_code\nwhile True:\n    pass\nget_weather('Oslo')\n```")
    upstream.reply("```tool_code\nget_weather('Oslo')\n```")
    settings = Settings(base_url=upstream.base_url, api_key="k", database=":memory:", **NEVER)
    with closing(ProgramServer(Limits(seconds=3600.0), most=1)) as programs:
        app = create_app(settings, programs=programs)
        with serve(app) as url:
            path, body = WITH_TOOLS
            with asked(url, path, {**body, "stream": stream}):
                wait_until(
                    lambda: bool(upstream.exchanges and upstream.exchanges[0].ended.is_set())
                )
            status, _, answer = send(f"{url}{path}", body)
        app.extensions["emulator"].close()
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


IDLE = "print('began', flush=True)\nimport time\ntime.sleep(3600)"
OBSTINATE = """
import time
print('began', flush=True)
while True:
    try:
        time.sleep(3600)
    except BaseException:
        pass
"""


@needs_bubblewrap
@pytest.mark.parametrize("code", [IDLE, OBSTINATE], ids=["idle", "obstinate"])
def test_a_cell_ends_with_the_client(start_proxy: StartProxy, code: str) -> None:
    """Also one that takes no interrupt: a container takes no other cell before that."""
    url = start_proxy(**NEVER, interpreter_seconds=3000)
    _, _, container = send(f"{url}/v1/containers", {"name": "c"})
    path = f"/v1/containers/{container['id']}/execute"
    for stream in (True, False):
        with asked(url, path, {"code": code, "stream": stream}) as connection:
            if stream:
                read_until(connection, b"began")
        status, _, ran = send(f"{url}{path}", {"code": "print('free')"})
        assert (status, ran["stdout"]) == (200, "free\n")


def test_a_passed_through_request_ends_with_the_client(start_proxy: StartProxy) -> None:
    """The upstream is plain bytes here: a head, then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = start_proxy(**NEVER, base_url=f"http://127.0.0.1:{port}/v1")
        with asked(url, "/v1/completions", {"model": "m", "prompt": "Hi"}) as connection:
            upstream, _ = server.accept()
            with upstream:
                read_until(upstream, b"}")
                upstream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\nHello")
                read_until(connection, b"Hello")
                connection.close()
                upstream.settimeout(60)
                assert upstream.recv(1) == b""


def test_a_next_request_on_the_same_connection_is_answered(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """It may come while the first is served: there is something to read, and nobody has left."""
    upstream.default = Reply("Hello.", first_delay=0.2)
    url = start_proxy(**NEVER)
    with asked(url, *CHAT) as connection:
        connection.sendall(post_bytes(*CHAT))
        assert read_until(connection, b"Hello.").startswith(b"HTTP/1.1 200")


class _StaleEvents:
    """An epoll that tells of a connection which has gone, as it does to a thread that is slow to hear it."""

    def __init__(self, descriptor: int, watching: Disconnects) -> None:
        self._descriptor = descriptor
        self._watching = watching

    def poll(self, _: float) -> list[tuple[int, int]]:
        self._watching.close()
        return [(self._descriptor, 0)]

    def unregister(self, _: int) -> None:
        pass


@pytest.mark.parametrize("gone", [False, True])
def test_a_reused_descriptor_is_not_taken_for_the_closed_connection(
    gone: bool,
) -> None:
    """On a busy machine one request in some hundred was ended with 499, though its client was there."""
    left = threading.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if gone:
            theirs.close()

        watching, client = Disconnects(), ClientDisconnect()
        watching.watch(ours.fileno(), client)
        with client.stopping(left.set):
            watching._poll(_StaleEvents(ours.fileno(), watching))  # type: ignore[arg-type]
            assert left.wait(5 if gone else 0.2) is gone
        watching.forget(ours.fileno(), client)
