"""An upstream with more than chats: embeddings, speech, completions; a real server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SOUND = bytes(range(256)) * 64
EMBEDDED = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
    "model": "e",
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
PIECES = ("one", " two")
REFUSAL = {"error": {"message": "no such model", "type": "x", "param": "model", "code": "y"}}


def _completion(piece: str) -> bytes:
    chunk = {"id": "c", "object": "text_completion", "choices": [{"text": piece}]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


_EMBEDDED = (200, "application/json", json.dumps(EMBEDDED).encode())
ANSWERS: dict[str, tuple[Any, ...]] = {
    "/embeddings": _EMBEDDED,
    "/batches": _EMBEDDED,
    "/audio/speech": (200, "audio/mpeg", SOUND),
    "/audio/transcriptions": (200, "application/json", b'{"text": "hello"}'),
    "/completions": (200, "text/event-stream", *map(_completion, PIECES), b"data: [DONE]\n\n"),
    "/moderations": (404, "application/json", json.dumps(REFUSAL).encode()),
}
"""Path -> status, content type and pieces of the body."""


class OtherEndpoints(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Status and headers of the next answers, instead of those of ANSWERS."""
        self.may_end = threading.Event()
        """Streams wait for it after their first event."""
        self.may_end.set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def other_endpoints() -> Iterator[OtherEndpoints]:
    with OtherEndpoints() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: OtherEndpoints

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        path = self.path.partition("?")[0].removeprefix("/v1")
        if self.server.refusals:
            self._send_head(*self.server.refusals.pop(0))
        elif path == "/elsewhere":
            self._send_head(307, {"location": "http://127.0.0.1:1/steal"})
        else:
            self._send(*ANSWERS.get(path, (404, "text/html", b"<h1>Not found</h1>")))

    do_GET = do_HEAD = do_POST  # noqa: N815 - the base class looks for these names

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, kind: str, *pieces: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(sum(map(len, pieces))))
        self.send_header("x-ratelimit-remaining-requests", "9")
        self.send_header("set-cookie", "session=secret")
        self.end_headers()
        for n, piece in enumerate(pieces if self.command != "HEAD" else ()):
            if n:
                self.server.may_end.wait(60)
            self.wfile.write(piece)
