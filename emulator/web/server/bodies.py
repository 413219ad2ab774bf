"""Read a request's body against a deadline that moves with each byte. Knows nothing of heads."""

from __future__ import annotations

import socket
import time

from gunicorn.http.errors import NoMoreData, ParseException


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
