"""An upstream model whose replies the test writes: a real HTTP server on loopback, not a mock.

Speaks OpenAI's chat completions (SSE in chunked HTTP/1.1 where `stream` is true, one JSON object
otherwise) and `GET /v1/models`. Records what it was asked and whether the client stayed to the end,
and fails in the ways that real upstreams fail. Does not know how to talk like a model: no `n`, no
`stop`, no tokenizer.

    with ScriptedUpstream() as upstream:
        upstream.reply("Hello!", "```tool_code\\nget_weather('Oslo')\\n```", chunks=4)
        upstream.reply(lambda body: f"You sent {len(body['messages'])} messages")
        client = openai.OpenAI(base_url=upstream.base_url, api_key="any")
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from tests.support.serving import serving

Body = dict[str, Any]
Fault = Literal["drop", "malformed", "error_event", "silent"]

USAGE: Mapping[str, Any] = MappingProxyType(
    {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
)
ERROR_EVENT: Mapping[str, Any] = MappingProxyType(
    {"message": "scripted failure mid-stream", "type": "server_error", "param": None, "code": None}
)
MALFORMED = '{"id": "chatcmpl-scripted", "choices": [{"delta": {"content": "bro'
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"
POLL = 0.02  # seconds between two looks at whether the client has left


@dataclass(frozen=True)
class Reply:
    """The upstream's answer to one request; every field is optional.

    `chunks` cuts text, reasoning and tool call arguments into deltas: None sends each whole, an int
    cuts after every so many characters, a sequence of strings is the text's exact pieces (`text`
    may then be left out).
    `first_delay` passes before the status line, `delay` before each delta but the first (seconds).
    `usage` is sent as real upstreams do: in a plain completion, and in a stream if
    `stream_options.include_usage` is true. None sends none.
    `finish_reason=None` makes a stream without one.
    `tool_calls` are `{"name": ..., "arguments": dict or str, "id": optional}`.
    A `status` other than 200 answers `body` (JSON, or a str sent as it is) or else an error of
    OpenAI's shape.
    `frames` are exact SSE bytes sent instead of everything above, for a decoder's tests; `raw` are
    the bytes of the whole HTTP response, after which the connection is closed (`fault="silent"`:
    when the client has left).

    `fault` happens when `after` deltas have been sent (the opening role delta is not counted):
    "drop" resets the connection, "malformed" sends one frame of broken JSON and goes on,
    "error_event" sends `data: {"error": ...}` and ends, "silent" sends no more until the client
    leaves. In a plain completion the same faults are: a reset in the middle of the body, half the
    JSON, the error object with status 200, a body that is never sent.
    """

    text: str = ""
    reasoning: str = ""
    chunks: int | Sequence[str] | None = None
    delay: float = 0.0
    first_delay: float = 0.0
    finish_reason: str | None = "stop"
    usage: Mapping[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    fault: Fault | None = None
    after: int = 0
    tool_calls: Sequence[Mapping[str, Any]] = ()
    frames: Sequence[bytes] | None = None
    raw: Iterable[bytes] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.chunks, Sequence):
            object.__setattr__(self, "text", "".join(self.chunks))

    def calls(self) -> list[dict[str, Any]]:
        """The tool calls in OpenAI's shape."""
        shaped = []
        for i, call in enumerate(self.tool_calls):
            arguments = call.get("arguments", {})
            written = arguments if isinstance(arguments, str) else json.dumps(arguments)
            function = {"name": call["name"], "arguments": written}
            shaped.append(
                {"id": call.get("id", f"call_{i}"), "type": "function", "function": function}
            )
        return shaped

    def deltas(self) -> Iterator[dict[str, Any]]:
        """Everything a stream says between the opening role delta and the finish reason."""
        size = self.chunks if isinstance(self.chunks, int) else None
        for piece in cut(self.reasoning, size):
            yield {"reasoning_content": piece}
        explicit = None if self.chunks is None or isinstance(self.chunks, int) else self.chunks
        for piece in explicit if explicit is not None else cut(self.text, size):
            yield {"content": piece}
        for i, call in enumerate(self.calls()):
            function = call["function"]
            yield {"tool_calls": [{"index": i} | call | {"function": function | {"arguments": ""}}]}
            for piece in cut(function["arguments"], size):
                yield {"tool_calls": [{"index": i, "function": {"arguments": piece}}]}


Answer = str | Reply | Callable[[Body], "str | Reply"]


@dataclass
class Exchange:
    """One request and what became of its reply.

    `ended` is set however it ended, `aborted` (before it) if the client left first.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: Body
    aborted: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    sent: int = 0  # deltas written, the opening role delta not counted


class ClientGone(Exception):
    """The client closed the connection before its reply ended."""


class ScriptedUpstream:
    """The server, a context manager. Replies are used once each, in the order requests arrive.

    requests   the parsed bodies of all POSTs so far; `headers` alongside, with lower-case names
    exchanges  the same and GETs, with path and fate: `exchanges[-1].aborted.wait(5)`
    aborted    set once any client has closed its connection before the reply ended
    failures   why a request got a 500 that no test asked for: no reply queued, or a callable raised
    default    answers whenever the queue is empty; None fails instead
    """

    def __init__(
        self,
        *replies: Answer,
        port: int = 0,
        models: Sequence[str] = ("scripted",),
        default: Answer | None = None,
        server: UpstreamServer | None = None,
    ) -> None:
        """``server`` is a running one, which serves for this upstream until the block ends."""
        self.models = tuple(models)
        self.default = default
        self.at_root: dict[str, Any] = {}
        """Path -> the JSON that a GET of it answers."""
        self.exchanges: list[Exchange] = []
        self.failures: list[str] = []
        self.aborted = threading.Event()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._queue: deque[Answer] = deque(replies)
        self._server = server or UpstreamServer(port)
        self._serving = nullcontext() if server else serving(self._server)

    def __enter__(self) -> Self:
        self._server.upstream = self
        self._serving.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closing.set()
        self._serving.__exit__(None, None, None)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> list[Body]:
        return [e.body for e in self.exchanges if e.method == "POST"]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [e.headers for e in self.exchanges if e.method == "POST"]

    @property
    def pending(self) -> int:
        """Replies that nothing has asked for yet."""
        return len(self._queue)

    def reply(self, *replies: Answer, **fields: Any) -> Self:
        """Queue replies; `fields` are `Reply`'s, for replies given as text: `("Hi", chunks=1)`."""
        if fields and not all(isinstance(reply, str) for reply in replies):
            raise TypeError("fields go with replies given as text; put them into the Reply")
        queued: Sequence[Answer] = replies
        if fields:
            texts = [text for text in replies if isinstance(text, str)]
            queued = [Reply(text, **fields) for text in texts] or [Reply(**fields)]
        with self._lock:
            self._queue.extend(queued)
        return self

    def answer(self, exchange: Exchange) -> Reply:
        """Take the next reply; one that fails loudly if the test has not written any."""
        with self._lock:
            self.exchanges.append(exchange)
            number = len(self.requests)
            answer = self._queue.popleft() if self._queue else self.default
        if answer is None:
            return self._fail(f"ScriptedUpstream: no reply is queued for request {number}")
        if callable(answer):
            try:
                answer = answer(exchange.body)
            except Exception as error:  # noqa: BLE001 - the test's own code; its author must see it
                return self._fail(
                    f"ScriptedUpstream: the reply to request {number} raised {error!r}"
                )
        return Reply(answer) if isinstance(answer, str) else answer

    def _fail(self, why: str) -> Reply:
        self.failures.append(why)
        error = {"message": why, "type": "scripted_upstream", "param": None, "code": None}
        # Without the header the openai client would ask again, and hide the failure for a while.
        return Reply(status=500, headers={"x-should-retry": "false"}, body={"error": error})


class UpstreamServer(ThreadingHTTPServer):
    """The listening part of an upstream. The next upstream takes its place; each answers its own requests."""

    daemon_threads = True
    request_queue_size = 256
    upstream: ScriptedUpstream

    def __init__(self, port: int = 0) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not self.upstream.closing.is_set():
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Also end the connections that clients keep alive; each has a thread waiting in a read."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: UpstreamServer
    upstream: ScriptedUpstream
    exchange: Exchange

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.upstream = self.server.upstream
        self._record({})
        self.upstream.exchanges.append(self.exchange)
        if self.path in self.upstream.at_root:
            self._send_json(200, self.upstream.at_root[self.path])
        elif self._path() == "/models":
            created = int(time.time())
            listed = [
                {"id": name, "object": "model", "created": created, "owned_by": "scripted"}
                for name in self.upstream.models
            ]
            self._send_json(200, {"object": "list", "data": listed})
        else:
            self._send_json(404, error_body(404, f"no such path: {self.path}"))
        self.exchange.ended.set()

    def do_POST(self) -> None:
        self.upstream = self.server.upstream
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self._path() not in ("/chat/completions", "/completions"):
            self._send_json(404, error_body(404, f"no such path: {self.path}"))
            return
        body = json.loads(raw)
        self._record(body)
        reply = self.upstream.answer(self.exchange)
        try:
            self._pause(reply.first_delay)
            if reply.raw is not None:
                self._send_raw(reply, reply.raw)
            elif reply.status != 200:
                self._send_error(reply)
            elif body.get("stream"):
                self._stream(reply, body)
            else:
                self._complete(reply, body)
        except (ClientGone, ConnectionError):
            self.close_connection = True
            if not self.upstream.closing.is_set():
                self.exchange.aborted.set()
                self.upstream.aborted.set()
        finally:
            self.exchange.ended.set()

    def _path(self) -> str:
        return urlsplit(self.path).path.removeprefix("/v1").rstrip("/")

    def _record(self, body: Body) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.exchange = Exchange(self.command, self.path, headers, body)

    # Answers

    def _send_raw(self, reply: Reply, raw: Iterable[bytes]) -> None:
        self.close_connection = True
        for piece in raw:
            self.wfile.write(piece)
        if reply.fault == "silent":
            self._pause(float("inf"))

    def _send_error(self, reply: Reply) -> None:
        if isinstance(reply.body, str):
            headers = {"content-type": "text/plain"} | dict(reply.headers)
            self._send(reply.status, reply.body.encode(), headers)
        else:
            body = error_body(reply.status) if reply.body is None else reply.body
            self._send_json(reply.status, body, reply.headers)

    def _send_json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        typed = {"content-type": "application/json"} | dict(headers or {})
        self._send(status, json.dumps(body).encode(), typed)

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {"content-length": str(len(content))} | dict(headers))
        self.wfile.write(content)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _complete(self, reply: Reply, body: Body) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = reply.calls()
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        completion = envelope("chat.completion", body) | {"choices": [choice]}
        if reply.usage is not None:
            completion["usage"] = dict(reply.usage)
        if reply.fault == "error_event":
            completion = {"error": dict(ERROR_EVENT)}
        content = json.dumps(completion).encode()
        if reply.fault == "malformed":
            content = content[: len(content) // 2]
        headers = {"content-type": "application/json", "content-length": str(len(content))}
        self._head(200, headers | dict(reply.headers))
        if reply.fault == "drop":
            self.wfile.write(content[: len(content) // 2])
            self._reset()
        elif reply.fault == "silent":
            self._pause(float("inf"))
        else:
            self.wfile.write(content)

    def _stream(self, reply: Reply, body: Body) -> None:
        streamed = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        self._head(200, streamed | {"transfer-encoding": "chunked"} | dict(reply.headers))
        if reply.frames is not None:
            for exact in reply.frames:
                self._pause(reply.delay if self.exchange.sent else 0.0)
                self._write(exact)
                self.exchange.sent += 1
            self.wfile.write(LAST_CHUNK)
            return
        base = envelope("chat.completion.chunk", body)

        def frame(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            return sse(base | {"choices": [choice]})

        self._write(frame({"role": "assistant", "content": ""}))
        for delta in reply.deltas():
            if self.exchange.sent == reply.after and self._fault(reply):
                return
            self._pause(reply.delay if self.exchange.sent else 0.0)
            self._write(frame(delta))
            self.exchange.sent += 1
        if self.exchange.sent <= reply.after and self._fault(reply):
            return
        if reply.finish_reason is not None:
            self._write(frame({}, reply.finish_reason))
        if reply.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
            self._write(sse(base | {"choices": [], "usage": dict(reply.usage)}))
        # In one write: a client that leaves on reading [DONE] has had all of its reply.
        self.wfile.write(chunk(DONE) + LAST_CHUNK)

    def _fault(self, reply: Reply) -> bool:
        """Commit the reply's fault, if it has one. True if nothing more is to be sent."""
        if reply.fault == "malformed":
            self._write(f"data: {MALFORMED}\n\n".encode())
            return False
        if reply.fault == "error_event":
            self.wfile.write(chunk(sse({"error": dict(ERROR_EVENT)})) + LAST_CHUNK)
        elif reply.fault == "drop":
            self._reset()
        elif reply.fault == "silent":
            self._pause(float("inf"))
        return reply.fault is not None

    # The connection

    def _write(self, payload: bytes) -> None:
        # A write succeeds until the peer's reset has arrived, hence the look first.
        if self._client_gone():
            raise ClientGone
        self.wfile.write(chunk(payload))

    def _pause(self, seconds: float) -> None:
        """Wait. Raises ClientGone as soon as the client leaves or the server closes."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if self.upstream.closing.wait(min(remaining, POLL)) or self._client_gone():
                raise ClientGone

    def _client_gone(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def _reset(self) -> None:
        """Close with a TCP reset instead of a FIN, as a killed upstream does."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Not close(): rfile and wfile keep the descriptor open, and the server sends a FIN first.
        os.close(self.connection.detach())


def cut(text: str, size: int | None) -> list[str]:
    """`text` in pieces of `size` characters; whole for None; no piece for no text."""
    if size is None:
        return [text] if text else []
    return [text[i : i + size] for i in range(0, len(text), size)]


def envelope(kind: str, body: Body) -> dict[str, Any]:
    return {
        "id": "chatcmpl-scripted",
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model", "scripted"),
    }


def sse(event: Any) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def delta(content: str = "", finish: str | None = None) -> bytes:
    """An event of a stream, as short as upstreams write it."""
    written = {"content": content} if content else {}
    choice = {"index": 0, "delta": written, "finish_reason": finish}
    return sse({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})


def chunk(payload: bytes) -> bytes:
    """HTTP/1.1 chunked transfer coding (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def error_body(status: int, message: str | None = None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    text = message or f"scripted status {status}"
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}
