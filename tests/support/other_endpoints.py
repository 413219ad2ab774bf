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


class OtherEndpoints(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Status and headers of the next answers, before all others."""
        self.may_end = threading.Event()
        """Streams wait for it behind their first event."""
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

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        if self.server.refusals:
            status, told = self.server.refusals.pop(0)
            self.send_response(status)
            for name, value in {**told, "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()
            return
        match self.path.partition("?")[0].removeprefix("/v1"):
            case "/embeddings" | "/batches":
                self._send(200, "application/json", json.dumps(EMBEDDED).encode())
            case "/audio/speech":
                self._send(200, "audio/mpeg", SOUND)
            case "/audio/transcriptions":
                self._send(200, "application/json", b'{"text": "hello"}')
            case "/completions":
                events = [
                    json.dumps(
                        {"id": "c", "object": "text_completion", "choices": [{"text": piece}]}
                    )
                    for piece in PIECES
                ]
                stream = [f"data: {event}\n\n".encode() for event in [*events, "[DONE]"]]
                self._send(200, "text/event-stream", *stream)
            case "/elsewhere":
                self.send_response(307)
                self.send_header("location", "http://127.0.0.1:1/steal")
                self.end_headers()
            case "/moderations":
                error = {"message": "no such model", "type": "x", "param": "model", "code": "y"}
                self._send(404, "application/json", json.dumps({"error": error}).encode())
            case _:
                self._send(404, "text/html", b"<h1>Not found</h1>")

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
