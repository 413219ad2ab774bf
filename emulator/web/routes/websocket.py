"""`/responses` over a WebSocket: each message is a request, each event of its answer a message.

    handshake ──► message ──► POST /v1/responses, streamed, within this process ──► events ──► next message

So a message passes the same checks, limits and records as a request over HTTP. The connection has a thread of
its own, as a stream has, and a second one that reads (simple-websocket). Whoever closes it ends the work for
it. The last response of a connection can be continued by its id, stored or not, as OpenAI's can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import Context
from functools import partial
from socket import SHUT_RD
from typing import TYPE_CHECKING, Any

from flask import Response, request
from simple_websocket import ConnectionClosed, Server
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from emulator.core import client_disconnect, json_codec
from emulator.core.client_disconnect import ClientDisconnect, stop_on_disconnect
from emulator.core.errors import BadRequest, EmulatorError
from emulator.core.events import new_id
from emulator.core.protocol import read_object
from emulator.fronts.responses.items import Json, check_outputs, normalize, parse
from emulator.upstream.sse import SSEDecoder
from emulator.web.middleware.inner_post import InnerPost

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_IDLE_SECONDS = 3600.0
_PING_SECONDS = 25.0
_CLOSE_SECONDS = 1.0
"""The time that a client has to answer the end of its connection."""
_CLOSED = (ConnectionClosed, LocalProtocolError, OSError)
"""What using a connection raises that the other thread, or the client, has closed."""
_MAX_WAITING = 16
"""Messages that have arrived and wait for an answer."""
_GOING_AWAY, _TOO_MANY = 1001, 1008
"""Codes of RFC 6455, section 7.4.1."""


def answer_websocket(max_bytes: int) -> Response:
    """Answer the messages of the current request's connection until it is closed. Raises `BadRequest`."""
    disconnect = client_disconnect.current.get() or ClientDisconnect()
    options = {"ping_interval": _PING_SECONDS, "max_message_size": max_bytes}
    try:
        socket = _Socket(request.environ, disconnect, **options)
    except RemoteProtocolError as error:
        raise BadRequest(f"The WebSocket handshake is not valid: {error}") from error
    try:
        with stop_on_disconnect(partial(socket.end, _GOING_AWAY)):
            _Conversation(socket).answer_all()
    except _CLOSED:
        pass
    finally:
        socket.end()
        socket.join()
    return _Upgraded(status=101)


class _Upgraded(Response):
    """Nothing is left to send."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if "gunicorn.socket" in environ:
            self.close()
            raise StopIteration  # gunicorn closes the connection
        return super().__call__(environ, start_response)


class _Socket(Server):  # type: ignore[misc]  # simple-websocket has no types
    """A connection that reports its end, and on which only one thread writes at a time."""

    def __init__(
        self, environ: WSGIEnvironment, disconnect: ClientDisconnect, **options: Any
    ) -> None:
        name = next(n for n in ("gunicorn.socket", "werkzeug.socket") if n in environ)
        self._disconnect = disconnect
        super().__init__({**environ, name: _Whole(environ[name])}, **options)

    def end(self, code: int | None = None) -> None:
        """Callable twice."""
        try:
            self.close(code)
        except _CLOSED:
            return
        finally:
            self.event.set()

    def join(self) -> None:
        """Wait for the thread that reads: afterwards the connection is the server's again."""
        self.thread.join(_CLOSE_SECONDS)
        with suppress(OSError):
            self.sock.shutdown(SHUT_RD)  # wakes it if the client does not close
        self.thread.join()

    def _thread(self) -> None:
        try:
            super()._thread()
        finally:
            self._disconnect.report()

    def _handle_events(self) -> bool:
        """Return False after the last event."""
        goes_on = bool(super()._handle_events())
        if len(self.input_buffer) > _MAX_WAITING:
            self.end(_TOO_MANY)
            return False
        return goes_on


class _Whole:
    """A socket whose `send` sends all, undisturbed by other threads, and which only its server closes."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._sending = threading.Lock()

    def send(self, data: bytes) -> None:
        with self._sending:
            self._socket.sendall(data)

    def close(self) -> None:
        """Does nothing. The next connection would get the descriptor, by which the server knows this one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _Conversation:
    def __init__(self, socket: _Socket) -> None:
        self._socket = socket
        self._last = ""
        """The id of the last response if it is not stored, else ""."""
        self._before: str | None = None
        """The stored response that it continues."""
        self._items: list[Json] = []
        """The items after that one, those of the last response among them."""

    def answer_all(self) -> None:
        """Raises `ConnectionClosed`."""
        while (message := self._socket.receive(_IDLE_SECONDS)) is not None:
            try:
                self._answer(message)
            except EmulatorError as error:
                self._send_error(error.status, error.body())

    def _answer(self, message: str | bytes) -> None:
        fields = read_object(message if isinstance(message, bytes) else message.encode())
        if fields.pop("type", None) != "response.create":
            raise BadRequest("A message must be of the type response.create.", "type")
        fields |= {"stream": True, "background": None}
        generates = fields.pop("generate", True) is not False
        items, before = normalize(fields.get("input") or []), fields.get("previous_response_id")
        if before and before == self._last:
            self._last = ""  # a turn that fails ends the conversation, as at OpenAI
            if self._before is None:  # otherwise the route knows all calls
                check_outputs(parse(self._items), parse(items))
            items, before = [*self._items, *items], self._before
            fields |= {"previous_response_id": before, "input": items}
        response = self._stream(fields) if generates else self._without_answer(fields)
        if response is not None:
            is_stored = generates and fields.get("store") is not False
            self._last = "" if is_stored else response["id"]
            self._before, self._items = before, [*items, *response["output"]]

    def _without_answer(self, fields: Json) -> Json:
        """The client prepares a conversation: the next message names this response."""
        response: Json = {
            "id": new_id("resp_"), "object": "response", "status": "completed", "output": [],
            "model": fields.get("model"),
        }  # fmt: skip
        for number, name in enumerate(("response.created", "response.completed")):
            self._send({"type": name, "sequence_number": number, "response": response})
        return response

    def _stream(self, fields: Json) -> Json | None:
        """Send the answer's events. Returns the response if it has ended well."""
        answer, context = _Answer(self._send), Context()
        disconnect = ClientDisconnect()  # a stream that is closed reports one
        context.run(client_disconnect.current.set, disconnect)
        with stop_on_disconnect(disconnect.report):
            post = InnerPost(json_codec.dumps(fields))
            body = context.run(post.application, post.environ, answer.start)
            try:
                for data in _within(context, body):
                    answer.write(data)
            finally:
                context.run(getattr(body, "close", lambda: None))
        if answer.status >= 400:
            self._send_error(answer.status, json_codec.loads(bytes(answer.error)))
        return answer.response

    def _send(self, event: Json) -> None:
        """Raises OSError."""
        try:
            self._socket.send(json_codec.dumps(event).decode())
        except _CLOSED as error:
            raise BrokenPipeError from error

    def _send_error(self, status: int, body: Any) -> None:
        self._send({"type": "error", "status": status, **body})


class _Answer:
    """Turns what a WSGI application writes into messages."""

    def __init__(self, send: Callable[[Json], None]) -> None:
        self._send = send
        self._events = SSEDecoder()
        self.status = 200
        self.error = bytearray()
        self.response: Json | None = None

    def start(
        self, status: str, _headers: object, _problem: object = None
    ) -> Callable[[bytes], Any]:
        self.status = int(status.partition(" ")[0])
        return self.write

    def write(self, data: bytes) -> None:
        if self.status >= 400:
            self.error += data
            return
        for event in map(json_codec.loads, self._events.feed(data)):
            if event["type"] in ("response.completed", "response.incomplete"):
                self.response = event["response"]
            self._send(event)


def _within(context: Any, body: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of ``body``, each made in ``context``."""
    pieces = iter(body)
    while (data := context.run(next, pieces, None)) is not None:
        yield data
