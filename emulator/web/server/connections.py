"""A client's connection, and the states that it passes through.

    state            who reads from it        ends when
    ---------------  -----------------------  --------------------------------------------------------
    awaiting head    the worker's loop        the head is complete -> answering
                                              (closed: EOF, head too long (431), deadline (408))
    answering        the request's thread     the response is complete -> kept alive, awaiting head
                                              (the next head has begun to arrive) or closing
    kept alive       the worker's loop        the next head begins to arrive -> awaiting head, or, if it is
                                              complete, answering   (closed: EOF, keep-alive timeout)
    closing          the worker's loop        the client closes its side, or `LINGER_SECONDS` pass -> closed

What may never happen: that a thread waits for a head; that the loop blocks on a socket; that the loop and a
thread read from the same connection; that a connection which is *answering* is closed to make room.

In the loop a socket never blocks. In a thread each read of a body has a deadline (`BodySocket`), and each
write fails after `WRITE_SECONDS`.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from gunicorn.http.errors import NoMoreData, ParseException
from gunicorn.workers.gthread import TConn


class BodyTooSlow(TimeoutError):
    """The body's deadline has passed."""

    def __init__(self) -> None:
        super().__init__("it arrives too slowly")


BODY_ERRORS = (ParseException, NoMoreData, BodyTooSlow)
"""Exceptions that reading a request's body may raise."""
BODY_BYTES_PER_SECOND = 16 * 1024
"""Slower bodies are cut off once their first seconds are over (like MinRate of Apache's mod_reqtimeout)."""


class BodySocket:
    """A connection as gunicorn's parser reads it.

    The deadline is ``seconds`` from now, and later with each byte.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._read_limit: float | None = None
        self._deadline = time.monotonic() + seconds

    def recv(self, size: int) -> bytes:
        """Raises BodyTooSlow."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise BodyTooSlow
        if self._read_limit is not None:
            remaining = min(remaining, self._read_limit)
        self._connection.settimeout(remaining)
        try:
            data = self._connection.recv(size)
        except TimeoutError as error:
            raise BodyTooSlow from error
        finally:
            self._connection.setblocking(True)
        self._deadline += len(data) / BODY_BYTES_PER_SECOND
        return data

    def gettimeout(self) -> float | None:
        return self._read_limit

    def settimeout(self, seconds: float | None) -> None:
        """Limit each read, in addition to the deadline of the whole body."""
        self._read_limit = seconds


WRITE_SECONDS = 60
"""Longest wait for a client to accept a part of its response."""
LINGER_SECONDS = 2.0


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, cfg: Any, client: socket.socket, address: Any, server: Any) -> None:
        super().__init__(cfg, client, address, server)
        # The kernel's timeout: with one of Python's own each write would begin with a poll(2).
        timeval = struct.pack("ll", WRITE_SECONDS, 0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)

    head = b""
    """The part of the next request's head that has arrived."""
    body_seconds = 20.0
    """Time that a body has before its rate counts."""

    def init(self) -> None:
        """Prepare the parser; runs in the request's thread."""
        super().init()
        reader = self.parser.unreader
        reader.unread(self.head)
        self.head = b""
        reader.sock = BodySocket(self.sock, self.body_seconds)

    @property
    def is_closed(self) -> bool:
        """True if it was closed to make room after the loop had collected the events of this round."""
        return bool(self.sock.fileno() < 0)
