"""An upstream's open answer, as bytes; faults are httpx2's errors. Knows nothing of what is said."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress

import httpx2
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from emulator.upstream.connections import Connection

_END_SECONDS = 0.05
"""How long the end of a body may come after its last event."""
_PIECE = 64 * 1024


class Answer(ABC):
    """An open one, to be closed."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""

    @abstractmethod
    def more(self) -> bytes:
        """What has come next of its body, b"" behind its end. Raises httpx2's `HTTPError`."""

    @abstractmethod
    def finish(self) -> None:
        """Read what little may follow the last event, so that the connection can serve the next request."""

    @abstractmethod
    def shut_down(self) -> None:
        """Break the connection, from any thread: a read that waits ends at once."""

    @abstractmethod
    def close(self) -> None: ...


class StraightAnswer(Answer):
    """Of urllib3, decoded if it was asked to."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        connection = getattr(answer, "connection", None)
        self._connection = connection if isinstance(connection, Connection) else None
        self._straight: Callable[[], bytes] = bytes
        if self._connection is not None:
            self._connection.serve(self)
            if "content-encoding" not in answer.headers:
                self._straight = self._connection.answer.straight

    def more(self) -> bytes:
        if data := self._straight():
            return data
        try:
            return self._answer.read1(_PIECE)
        except HTTPError as error:
            raise as_httpx(error) from error

    def finish(self) -> None:
        # If its end comes at once; else nothing is lost but the connection.
        with suppress(HTTPError, OSError, ValueError):
            if self._connection is not None and self._connection.wait_for(self, _END_SECONDS):
                self._answer.read1(_PIECE)

    def shut_down(self) -> None:
        if self._connection is not None:
            self._connection.shut_down(self)

    def close(self) -> None:
        self._answer.close()


def as_httpx(error: HTTPError) -> httpx2.TransportError:
    """What httpx2's own transport would raise."""
    match error:
        case ConnectTimeoutError() if not isinstance(error, NewConnectionError):
            return httpx2.ConnectTimeout(str(error))
        case ReadTimeoutError():
            return httpx2.ReadTimeout(str(error))
        case NewConnectionError() | SSLError():
            return httpx2.ConnectError(str(error.__cause__ or error))
    return httpx2.RemoteProtocolError(str(error))
