"""Calls from a worker to the keeper over a Unix socket. Knows nothing of the functions that are called.

One connection carries one call:

    client -> server    ``[name, arguments]``
    server -> client    ``["item", value]``                          a plain function returned
                        ``["item", value]`` ... then ``["end"]``     a generator yielded, then finished
                        ``["error", class name, facts]``             an `EmulatorError` was raised

A frame is a length (4 bytes, big-endian) and that much JSON. The client may close the connection early. A
generator is then stopped exactly as if the client of an HTTP request had disconnected
(`emulator.client_disconnect`); a plain function runs to its end, and its result is dropped.

The server answers only processes of its own user (SO_PEERCRED), and the socket is in a folder that other
users cannot enter. While the keeper restarts, calls wait in the socket's backlog: the master keeps it open.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from emulator import client_disconnect, errors, json_codec
from emulator.client_disconnect import ClientDisconnect, stop_on_disconnect
from emulator.errors import EmulatorError

log = structlog.get_logger()

MAX_FRAME_BYTES = 256 * 2**20
"""Outputs and results are bounded long before this."""
_LENGTH = struct.Struct(">I")
_BACKLOG = 1024

Handler = Callable[..., Any]
"""Answers the calls of one name: a function that returns JSON, or a generator that yields JSON.

The client raises the `EmulatorError` that it raised."""


Call = Callable[..., Any]
"""`RpcClient.call`, or `local_calls`."""


class KeeperUnavailable(Exception):
    """The server process is not running, or ended before it answered."""


class RpcClient:
    """Safe to share between threads and to inherit in a fork."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the function's value. Raises the function's `EmulatorError`, or `KeeperUnavailable`.

        Also raises `KeeperUnavailable` if the HTTP client being served disconnects; the function runs on.
        """
        with closing(self.stream(name, *arguments)) as values:
            return next(values)

    def stream(self, name: str, *arguments: Any) -> Generator[Any]:
        """Yield the generator's values. Raises the generator's `EmulatorError`, or `KeeperUnavailable`.

        Closing this iterator stops the generator; so does a disconnect of the HTTP client being served.
        """
        with (
            self._connect(name, arguments) as connection,
            stop_on_disconnect(partial(_shut_down, connection)),
        ):
            while True:
                kind, *value = _receive(connection)
                if kind == "end":
                    return
                yield value[0]

    def _connect(self, name: str, arguments: tuple[Any, ...]) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
            _write(connection, [name, arguments])
        except OSError as error:
            connection.close()
            raise KeeperUnavailable(str(error)) from error
        return connection


def local_calls(handlers: Mapping[str, Handler]) -> Call:
    """As `RpcClient.call`, for handlers in this process."""
    return lambda name, *arguments: handlers[name](*arguments)


def serve(listener: socket.socket, handlers: Mapping[str, Handler]) -> None:
    """Answer each call in a thread of its own. Never returns, unless the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            log.warning("the keeper accepts no more calls", reason=str(error))
            return
        if not _is_same_user(connection):
            connection.close()
            continue
        arguments = (connection, handlers)
        threading.Thread(target=_answer, args=arguments, name="call", daemon=True).start()


def _answer(connection: socket.socket, handlers: Mapping[str, Handler]) -> None:
    with connection, suppress(KeeperUnavailable):
        name, arguments = _read(connection)
        try:
            value = handlers[name](*arguments)
            if isinstance(value, Iterator):
                _send_all(connection, value)
            else:
                _send(connection, ["item", value])
        except EmulatorError as error:
            _send(connection, _error_frame(error))
        except KeeperUnavailable:
            raise
        except Exception:
            log.exception("a call to the keeper failed", call=name)
            failure = EmulatorError("The proxy failed; see its log.")
            _send(connection, _error_frame(failure))


def listen(path: Path) -> socket.socket:
    """A listening socket for `serve`. The folder of ``path`` must be closed to other users."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def _send_all(connection: socket.socket, values: Iterator[Any]) -> None:
    """Send what a generator yields, and stop it when the client closes the connection."""
    disconnect = ClientDisconnect()
    client_disconnect.current.set(disconnect)
    threading.Thread(
        target=_watch, args=(connection, disconnect), name="caller", daemon=True
    ).start()
    try:
        for value in values:
            _send(connection, ["item", value])
        _send(connection, ["end"])
    finally:
        values.close()  # type: ignore[attr-defined]  # handlers return generators
        _shut_down(connection)  # ends `_watch`


def _watch(connection: socket.socket, disconnect: ClientDisconnect) -> None:
    """After a call the client sends nothing: the read returns when the connection ends."""
    with suppress(OSError):
        connection.recv(1)
    disconnect.report()


def _is_same_user(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # not Linux: the folder alone keeps other users out
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def _shut_down(connection: socket.socket) -> None:
    """Unlike close, this also wakes another thread that is reading from the connection."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _send(connection: socket.socket, frame: list[Any]) -> None:
    """Raises `KeeperUnavailable`."""
    try:
        _write(connection, frame)
    except OSError as error:
        raise KeeperUnavailable(str(error)) from error


def _write(connection: socket.socket, frame: list[Any]) -> None:
    text = json_codec.dumps(frame)
    connection.sendall(_LENGTH.pack(len(text)) + text)


def _receive(connection: socket.socket) -> list[Any]:
    """The next frame of an answer. Raises the error that it carries."""
    frame = _read(connection)
    if frame[0] == "error":
        raise _error(*frame[1:])
    return frame


def _read(connection: socket.socket) -> list[Any]:
    """Raises `KeeperUnavailable`."""
    (length,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise KeeperUnavailable(f"a frame of {length} bytes")
    frame = json_codec.loads(_read_exactly(connection, length))
    assert isinstance(frame, list)
    return frame


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(min(size - len(data), 2**20))
        except OSError as error:
            raise KeeperUnavailable(str(error)) from error
        if not piece:
            raise KeeperUnavailable("it ended before it answered")
        data += piece
    return bytes(data)


def _error_frame(error: EmulatorError) -> list[Any]:
    facts = {
        "message": error.message,
        "param": error.param,
        "code": error.code,
        "headers": dict(error.headers),
    }
    return ["error", type(error).__name__, facts]


def _error(kind: str, facts: Mapping[str, Any]) -> EmulatorError:
    error = getattr(errors, kind, EmulatorError)(**facts)
    assert isinstance(error, EmulatorError)
    return error
