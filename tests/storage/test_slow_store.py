"""A slow store delays each request by its own reads only."""

from __future__ import annotations

import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.forward_proxy import copy_bytes
from tests.support.processes import REDIS_MISSING, RedisServer
from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serving
from tests.support.three_apis import APIS, PATHS, request_body
from tests.support.tools import GET_WEATHER

READERS = 8
_READS = (b"\r\nGET\r\n", b"\r\nMGET\r\n")
_SECONDS = 30
"""How long a read waits for the others before the test has failed."""


class GatheringRedis(socketserver.ThreadingTCPServer):
    """Passes commands on to a Redis, reads only when `READERS` connections send one at the same time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, target: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = str(target)
        self.reads = 0
        self.readers = threading.Barrier(READERS, action=self._count)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.server_address[1]}/0?socket_timeout={2 * _SECONDS}"

    def _count(self) -> None:
        self.reads += 1


class _Handler(socketserver.BaseRequestHandler):
    server: GatheringRedis

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as redis:
            redis.connect(self.server.target)
            back = threading.Thread(target=copy_bytes, args=(redis, self.request), daemon=True)
            back.start()
            with suppress(OSError):
                while command := self.request.recv(65536):
                    if any(read in command for read in _READS):
                        with suppress(threading.BrokenBarrierError):
                            self.server.readers.wait(_SECONDS)
                    redis.sendall(command)
                redis.shutdown(socket.SHUT_WR)
            back.join()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[GatheringRedis]:
    if shutil.which("redis-server") is None:
        pytest.skip(REDIS_MISSING)
    with RedisServer(tmp_path), serving(GatheringRedis(tmp_path / "redis.sock")) as server:
        yield server


QUESTION = {"role": "user", "content": "How is the weather in London?"}
CALL = {"name": "get_weather", "arguments": '{"location": "London"}'}
AFTER_A_CALL = [
    QUESTION,
    {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain"},
]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{api}, {'streamed' if stream else 'plain'}": (
            PATHS[api],
            request_body(api, GET_WEATHER, stream=stream),
        )
        for api in APIS
        for stream in (False, True)
    },
    "chat, a result": (PATHS["chat"], {"messages": AFTER_A_CALL, "tools": [GET_WEATHER]}),
    "chat, a history with calls, no tools": (PATHS["chat"], {"messages": AFTER_A_CALL}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_concurrent_requests_read_the_store_at_the_same_time(
    start_proxy: StartProxy, upstream: ScriptedUpstream, redis: GatheringRedis, name: str
) -> None:
    """On Python 3.11 the read of a conversation's records held a lock of all conversations: a store of 50 ms
    made 32 concurrent chats take 1.8 s instead of 0.3."""
    upstream.default = "Rain."
    path, body = REQUESTS[name]
    url = start_proxy(store=redis.url) + path
    with ThreadPoolExecutor(READERS) as clients:
        each = [clients.submit(fetch, url, {"model": "m", **body}) for _ in range(READERS)]
        answers = [one.result() for one in each]
    assert [status for status, _, _ in answers] == [200] * READERS
    assert all(b"Rain." in answer for _, _, answer in answers)
    assert not redis.readers.broken
    assert redis.reads > 0
