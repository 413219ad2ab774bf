"""The least that a proxy of this kind costs: Flask and urllib3, under the gunicorn that the proxy runs under.

`/v1/...` passes bytes on. `/reparsed/v1/...` decodes each event of a stream and writes it anew, as whatever
looks at chunks must.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import orjson
import urllib3
from flask import Flask, Response, request

UPSTREAM = os.environ["BARE_UPSTREAM"] + "/chat/completions"
pool = urllib3.PoolManager(maxsize=4096)
app = Flask(__name__, static_folder=None)


@app.post("/v1/chat/completions")
def pass_on() -> Response:
    answer = _ask()
    if not _streams(answer):
        return Response(answer.data, answer.status, mimetype="application/json")
    return Response(_passed(answer), answer.status, mimetype="text/event-stream")


@app.post("/reparsed/v1/chat/completions")
def reparse() -> Response:
    answer = _ask()
    if not _streams(answer):
        value = orjson.loads(answer.data)
        return Response(orjson.dumps(value), answer.status, mimetype="application/json")
    return Response(_reparsed(answer), answer.status, mimetype="text/event-stream")


def _ask() -> urllib3.BaseHTTPResponse:
    headers = {"authorization": "Bearer none", "content-type": "application/json"}
    return pool.request(
        "POST", UPSTREAM, body=request.get_data(), headers=headers, preload_content=False
    )


def _streams(answer: urllib3.BaseHTTPResponse) -> bool:
    return answer.headers.get("content-type", "").startswith("text/event-stream")


def _passed(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    try:
        yield from answer.stream()
    finally:
        answer.release_conn()


def _reparsed(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for data in _passed(answer):
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            said = event.removeprefix(b"data: ")
            if said == b"[DONE]":
                yield b"data: [DONE]\n\n"
            else:
                yield b"data: %b\n\n" % orjson.dumps(orjson.loads(said))
