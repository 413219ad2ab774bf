"""An upstream with more than chats: embeddings, speech, completions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, request

from tests.support.serving import serve

SOUND = bytes(range(256)) * 64
PIECES = ("one", " two")
_EMBEDDED = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
    "model": "e",
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
_REFUSAL = {"error": {"message": "no such model", "type": "x", "param": "model", "code": "y"}}
ANSWERS: dict[str, tuple[int, str, Any]] = {
    "/v1/embeddings": (200, "application/json", json.dumps(_EMBEDDED)),
    "/v1/batches": (200, "application/json", json.dumps(_EMBEDDED)),
    "/v1/audio/speech": (200, "audio/mpeg", SOUND),
    "/v1/audio/transcriptions": (200, "application/json", '{"text": "hello"}'),
    "/v1/moderations": (404, "application/json", json.dumps(_REFUSAL)),
}
"""Path -> status, content type and body."""


@dataclass
class OtherEndpoints:
    """What was requested: method, path, headers and body. Replies are those of ANSWERS."""

    url: str = ""
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers, instead of those of ANSWERS."""
    may_end: threading.Event = field(default_factory=threading.Event)
    """Streams wait for it after their first event."""

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def answer(self, path: str) -> Any:
        headers = {name.lower(): value for name, value in request.headers}
        body = request.get_data()
        self.asked.append((request.method, request.environ["REQUEST_URI"], headers, body))
        if self.refusals:
            status, refused = self.refusals.pop(0)
            return Response(status=status, headers=refused)
        if request.path == "/v1/elsewhere":
            return Response(status=307, headers={"location": "http://127.0.0.1:1/steal"})
        if request.path == "/v1/completions":
            status, kind, content = 200, "text/event-stream", self._completion()
        else:
            missing = (404, "text/html", "<h1>Not found</h1>")
            status, kind, content = ANSWERS.get(request.path, missing)
        answer = Response(content, status, content_type=kind)
        answer.headers["x-ratelimit-remaining-requests"] = "9"
        answer.headers["set-cookie"] = "session=secret"
        return answer

    def _completion(self) -> Iterator[str]:
        for n, piece in enumerate(PIECES):
            if n:
                self.may_end.wait(60)
            chunk = {"id": "c", "object": "text_completion", "choices": [{"text": piece}]}
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"


@contextmanager
def other_endpoints() -> Iterator[OtherEndpoints]:
    app, upstream = Flask("other endpoints"), OtherEndpoints()
    app.add_url_rule("/<path:path>", view_func=upstream.answer, methods=["GET", "POST"])
    upstream.may_end.set()
    with serve(app) as upstream.url:
        yield upstream
