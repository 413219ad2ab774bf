"""A request's body, as gunicorn reads it, against a deadline that moves as it comes. Knows no heads."""

from __future__ import annotations

import socket
import time

from gunicorn.http.errors import NoMoreData, ParseException


class BodyTooSlow(TimeoutError):
    """Of a request: its deadline is over."""

    def __init__(self) -> None:
        super().__init__("it comes too slowly")


BODY_ERRORS = (ParseException, NoMoreData, BodyTooSlow)
"""What reading a request's body raises."""
BODY_BYTES_A_SECOND = 16 * 1024
"""Slower bodies are cut off, once their first seconds are over (Apache's mod_reqtimeout, MinRate)."""


class BodySocket:
    """A connection with a deadline for all that is read, ``seconds`` from now and later with each byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._limit: float | None = None
        self._until = time.monotonic() + seconds

    def recv(self, size: int) -> bytes:
        """Raises BodyTooSlow."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise BodyTooSlow
        self._connection.settimeout(left if self._limit is None else min(left, self._limit))
        try:
            data = self._connection.recv(size)
        except TimeoutError as error:
            raise BodyTooSlow from error
        finally:
            self._connection.settimeout(0)
        self._until += len(data) / BODY_BYTES_A_SECOND
        return data

    def gettimeout(self) -> float | None:
        return self._limit

    def settimeout(self, seconds: float | None) -> None:
        """A limit for each read, beside the deadline of all."""
        self._limit = seconds
