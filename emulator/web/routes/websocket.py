"""`/responses` over a WebSocket: its connection. `lanes` answers the messages.

    handshake ──► open ──► closed: by the client, at the end of the process, or `_IDLE_SECONDS` after the last
                           message and answer

The connection has a thread of its own, as a stream has, which waits for its end; a second one that reads
(simple-websocket) and dispatches each message immediately; and one for each open lane. Its end, by either
side, ends the work for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from socket import SHUT_RD
from typing import TYPE_CHECKING, Any

from flask import Response, request
from simple_websocket import ConnectionClosed, Server
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from emulator.core import client_disconnect
from emulator.core.client_disconnect import ClientDisconnect, stop_on_disconnect
from emulator.core.errors import BadRequest
from emulator.web.routes.lanes import Lanes, TooManyPending

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_IDLE_SECONDS = 3600.0
_PING_SECONDS = 25.0
_CLOSE_SECONDS = 1.0
"""The time that a client has to answer the end of its connection."""
_CLOSED = (ConnectionClosed, LocalProtocolError, OSError)
"""What using a connection raises that another thread, or the client, has closed."""
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
            socket.wait()
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
    """A connection that dispatches its messages, reports its end, and sends one message at a time."""

    def __init__(
        self, environ: WSGIEnvironment, disconnect: ClientDisconnect, **options: Any
    ) -> None:
        name = next(n for n in ("gunicorn.socket", "werkzeug.socket") if n in environ)
        self._disconnect = disconnect
        self._sending = threading.Lock()
        self._lanes = Lanes(self._send_text, self.end)
        super().__init__({**environ, name: _Whole(environ[name])}, **options)

    def wait(self) -> None:
        """Return when the connection is closed, or has been idle for long."""
        while self.connected and (self.event.wait(_IDLE_SECONDS) or self._lanes.are_open):
            self.event.clear()

    def end(self, code: int | None = None) -> None:
        """Callable twice."""
        try:
            self.close(code)
        except _CLOSED:
            return
        finally:
            self.event.set()

    def join(self) -> None:
        """Wait for the other threads: afterwards the connection is the server's again."""
        self.thread.join(_CLOSE_SECONDS)
        with suppress(OSError):
            self.sock.shutdown(SHUT_RD)  # wakes it if the client does not close
        self.thread.join()
        self._lanes.join()

    def _send_text(self, message: str) -> None:
        """Raises OSError."""
        try:
            with self._sending:  # the messages share a compressor
                self.send(message)
        except _CLOSED as error:
            raise BrokenPipeError from error

    def _thread(self) -> None:
        try:
            super()._thread()
        finally:
            self.connected = False
            self.event.set()
            self._disconnect.report()

    def _handle_events(self) -> bool:
        """Return False after the last event."""
        continues = bool(super()._handle_events())
        messages: list[str | bytes] = self.input_buffer[:]
        self.input_buffer.clear()
        try:
            for message in messages:
                self._lanes.dispatch(message)
        except TooManyPending:
            self.end(_TOO_MANY)
            return False
        return continues


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
