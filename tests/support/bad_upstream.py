"""An upstream that fails in the way that the request's ``model`` names. Writes bytes."""

from __future__ import annotations

import json
import socket
import socketserver
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from io import BufferedIOBase
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(content: str = "", finish: str | None = None) -> bytes:
    written = {"content": content} if content else {}
    choice = {"index": 0, "delta": written, "finish_reason": finish}
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})


def status(code: int, body: Any, *headers: str) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {code} X", f"content-length: {len(raw)}", "connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + raw


DONE = b"data: [DONE]\n\n"
HTML = b"<html><body>It works!</body></html>"
LIMITED = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}

# The pieces to write; None sends nothing more and keeps the connection open.
BEHAVIOURS: dict[str, Callable[[], Iterator[bytes | None]]] = {
    "good": lambda: iter((OK, delta("Hello there"), delta(finish="stop"), DONE)),
    "hang before the head": lambda: iter((None,)),
    "hang within the head": lambda: iter((b"HTTP/1.1 200 OK\r\ncontent-", None)),
    "hang in the stream": lambda: iter((OK, delta("Hello there"), None)),
    "close at once": lambda: iter(()),
    "close in the stream": lambda: iter((OK, delta("Hello there"))),
    "close within an event": lambda: iter((OK, delta("Hello there"), b'data: {"choi')),
    "garbage for a head": lambda: iter((b"\x00\xff\x16\x03 nonsense\r\n\r\n",)),
    "garbage for events": lambda: iter((OK, b"\x00\x01\x02 what?\n\n" * 5)),
    "invalid UTF-8": lambda: iter(
        (OK, b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n')
    ),
    "truncated JSON": lambda: iter((OK, b'data: {"choices": [{"del\n\n')),
    "html": lambda: iter((status(200, HTML, "content-type: text/html"),)),
    "html with 502": lambda: iter((status(502, HTML, "content-type: text/html"),)),
    "an error object": lambda: iter((OK, event({"error": {"message": "it broke"}}))),
    "an error in the stream": lambda: iter(
        (OK, delta("Hello there"), event({"error": {"message": "it broke"}}))
    ),
    "empty choices": lambda: iter((OK, event({"choices": []}), DONE)),
    "a duplicate finish": lambda: iter(
        (OK, delta("Hello there"), delta(finish="stop"), delta(finish="stop"), DONE)
    ),
    "no [DONE]": lambda: iter((OK, delta("Hello there"), delta(finish="stop"))),
    "429": lambda: iter((status(429, LIMITED, "retry-after: 7"),)),
    "one huge event": lambda: (piece for piece in (OK, b"data: ", *[b"x" * 2**20] * 100)),
    "endless": lambda: _endless(),  # noqa: PLW0108 - defined below
}


def _endless() -> Iterator[bytes]:
    yield OK
    while True:
        yield delta("more and more ") * 50


def read_json(stream: BufferedIOBase) -> Any:
    """The body of the HTTP/1.1 request in ``stream``, or None."""
    size = 0
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    return json.loads(stream.read(size)) if size else None


class _Handler(socketserver.StreamRequestHandler):
    server: BadUpstream

    def handle(self) -> None:
        body = read_json(self.rfile)
        if body is None:  # the check that the upstream exists
            self.wfile.write(status(200, {"object": "list", "data": []}))
            return
        self.server.begun.append(body)
        with suppress(OSError):
            for piece in self.server.behaviours[body["model"]]():
                if piece is not None:
                    self.wfile.write(piece)
                elif not self.server.wait(self.connection):
                    break
        self.server.ended.append(body)


def wait_for_the_client(connection: socket.socket) -> bool:
    """Wait until the other side leaves."""
    connection.recv(1)
    return False


class BadUpstream(socketserver.ThreadingTCPServer):
    """Writes the pieces of the behaviour that a request's ``model`` names; ``wait`` is called for each None
    between them, and returns whether to continue. ``open`` is the number of answers that have not ended."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        behaviours: Mapping[str, Callable[[], Iterable[bytes | None]]] = BEHAVIOURS,
        wait: Callable[[socket.socket], bool] = wait_for_the_client,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviours = behaviours
        self.wait = wait
        self.begun: list[Any] = []
        self.ended: list[Any] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def open(self) -> int:
        return len(self.begun) - len(self.ended)
