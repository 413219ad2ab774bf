"""Questions from one process of the proxy to another, over a Unix socket. Knows nothing of what is asked.

A connection is one question: a frame ``[name, argument]``, answered by any number of frames
``["item", value]`` and then ``["end"]`` or ``["error", ...]``. A frame is two lengths (4 bytes each,
big-endian), so much JSON, and so many bytes as they are: what is only to be kept need not be read. Who asks
may close the connection before the end: whatever is done for the question is then stopped, as for a client
that leaves (`emulator.departure`).

Only processes of the same user are answered (SO_PEERCRED), and the socket lies in a folder that nobody else
may enter.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from emulator import departure, errors, json_codec
from emulator.departure import Departure
from emulator.errors import EmulatorError

log = structlog.get_logger()

MOST_BYTES = 256 * 2**20
"""Of a frame: outputs and results are bounded long before."""
_LENGTHS = struct.Struct(">II")
_BACKLOG = 1024

Handler = Callable[..., Iterator[Any]]
"""Answers a question of one name: given its argument, and the bytes that came with it if there are any.

Raises `EmulatorError`, which is raised again where it was asked."""


class Unreachable(Exception):
    """The other process is not there, or ended before it had answered."""


class Wire:
    """The end that asks. Safe to share between threads and to inherit in a fork."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def ask(self, name: str, argument: Any = None, data: bytes = b"") -> Iterator[Any]:
        """The answer's items as they come. Raises what the handler raised, and `Unreachable`.

        Closing the iterator, or the departure of the client that is served, ends the question.
        """
        with (
            self._asked(name, argument, data) as connection,
            departure.stopping(partial(_shut, connection)),
        ):
            while True:
                kind, *rest = _read(connection)
                if kind == "end":
                    return
                if kind == "error":
                    raise _error(*rest)
                yield rest[0]

    def ask_one(self, name: str, argument: Any = None, data: bytes = b"") -> Any:
        """The first item; None if there is none. Raises as `ask`."""
        answer = self.ask(name, argument, data)
        try:
            return next(answer, None)
        finally:
            answer.close()  # type: ignore[attr-defined]  # it is a generator

    def _asked(self, name: str, argument: Any, data: bytes) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
            _write(connection, [name, argument], data)
        except OSError as error:
            connection.close()
            raise Unreachable(str(error)) from error
        return connection


class WireServer:
    """The end that answers, each question in a thread of its own, until its process ends."""

    def __init__(self, listener: socket.socket, handlers: Mapping[str, Handler]) -> None:
        self._listener = listener
        self._handlers = handlers

    def serve(self) -> None:
        """Never returns, unless the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                log.warning("no more questions are taken", reason=str(error))
                return
            if not _is_own(connection):
                connection.close()
                continue
            threading.Thread(
                target=self._answer, args=(connection,), name="question", daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(Unreachable):
            name, *asked = _read(connection)
            client = Departure()
            departure.current.set(client)
            threading.Thread(
                target=_watch, args=(connection, client), name="asker", daemon=True
            ).start()
            try:
                answer = self._handlers[name](*asked)
                try:
                    for item in answer:
                        _send(connection, ["item", item])
                finally:
                    answer.close()  # type: ignore[attr-defined]  # handlers are generators
            except EmulatorError as error:
                _send(connection, _told(error))
            except Unreachable:
                raise
            except Exception:
                log.exception("a question failed", question=name)
                _send(connection, _told(EmulatorError("The proxy failed; its log says why.")))
            else:
                _send(connection, ["end"])
            finally:
                _shut(connection)  # and so `_watch` ends


def listen(path: Path) -> socket.socket:
    """A socket for `WireServer` at ``path``, whose folder is to be closed to others."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def _watch(connection: socket.socket, client: Departure) -> None:
    """Nothing comes after a question but its end."""
    with suppress(OSError):
        connection.recv(1)
    client.leave()


def _is_own(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is closed to others there too
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def _shut(connection: socket.socket) -> None:
    """Also wakes who reads from it in another thread, which closing it would not."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _send(connection: socket.socket, frame: list[Any]) -> None:
    """Raises `Unreachable`."""
    try:
        _write(connection, frame)
    except OSError as error:
        raise Unreachable(str(error)) from error


def _write(connection: socket.socket, frame: list[Any], data: bytes = b"") -> None:
    told = json_codec.dumps(frame)
    connection.sendall(b"".join((_LENGTHS.pack(len(told), len(data)), told, data)))


def _read(connection: socket.socket) -> list[Any]:
    """The frame, and its bytes as one more item if it has any. Raises `Unreachable`."""
    lengths = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size))
    if sum(lengths) > MOST_BYTES:
        raise Unreachable(f"a frame of {sum(lengths)} bytes")
    frame = json_codec.loads(_exactly(connection, lengths[0]))
    assert isinstance(frame, list)
    return [*frame, _exactly(connection, lengths[1])] if lengths[1] else frame


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(min(size - len(data), 2**20))
        except OSError as error:
            raise Unreachable(str(error)) from error
        if not piece:
            raise Unreachable("it ended before it had answered")
        data += piece
    return bytes(data)


def _told(error: EmulatorError) -> list[Any]:
    facts = {
        "message": error.message,
        "param": error.param,
        "code": error.code,
        "headers": dict(error.headers),
    }
    return ["error", type(error).__name__, facts]


def _error(kind: str, facts: Mapping[str, Any]) -> EmulatorError:
    known = getattr(errors, kind, EmulatorError)
    made = known(**facts)
    assert isinstance(made, EmulatorError)
    return made
