"""An upstream that fails in the way that the request's ``model`` names. Writes bytes; knows no HTTP library.

with BadUpstream() as upstream:
    ask(proxy_before(upstream.base_url), model="html")
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(content: str = "", finish: str | None = None) -> bytes:
    said = {"content": content} if content else {}
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})


def status(code: int, body: Any, *headers: str) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {code} X", f"content-length: {len(raw)}", "connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + raw


DONE = b"data: [DONE]\n\n"
HTML = b"<html><body>It works!</body></html>"
LIMITED = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}

# What to write, in pieces; None is to say nothing more and hold the connection.
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
    "endless": lambda: _endless(),  # noqa: PLW0108 - it stands below
}


def _endless() -> Iterator[bytes]:
    yield OK
    while True:
        yield delta("more and more ") * 50


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        body = self._body()
        if body is None:  # whether there is an upstream at all: there is
            self.wfile.write(status(200, {"object": "list", "data": []}))
            return
        self.server.asked.append(body)
        try:
            for piece in BEHAVIOURS[body["model"]]():
                if piece is None:
                    self.connection.recv(1)  # until the other side leaves
                    break
                self.wfile.write(piece)
        except OSError:
            pass
        finally:
            self.server.left.append(threading.get_ident())

    def _body(self) -> Any:
        size = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return json.loads(self.rfile.read(size)) if size else None


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Any] = []
        self.left: list[int] = []


class BadUpstream:
    """``open`` is how many of its answers have not ended."""

    def __init__(self) -> None:
        self._server = _Server()
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def open(self) -> int:
        return len(self._server.asked) - len(self._server.left)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
