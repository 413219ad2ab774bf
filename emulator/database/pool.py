"""Connections to a database: made when they are needed, each used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from emulator.database.database import SECONDS, DatabaseFailed


class _Connection(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Connection)


class Pool(Generic[C]):
    """Safe to share between threads."""

    def __init__(self, connect: Callable[[], C], most: int, is_usable: Callable[[C], bool]) -> None:
        """``is_usable`` returns False for a connection that must be closed after its use."""
        self._connect = connect
        self._is_usable = is_usable
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[C] = []
        self._closed = False

    def take(self, seconds: float = SECONDS) -> C:
        """A connection, which `give` must follow.

        Raises `DatabaseFailed` if none is free for ``seconds``, and what connecting raises.
        """
        if not self._free.acquire(timeout=max(0.0, seconds)):
            raise DatabaseFailed(f"all connections were in use for {SECONDS:g} s")
        try:
            return self._idle.pop()
        except IndexError:
            try:
                return self._connect()
            except BaseException:
                self._free.release()
                raise

    def give(self, connection: C) -> None:
        if self._is_usable(connection) and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        self._free.release()

    @contextmanager
    def connection(self) -> Iterator[C]:
        """As `take`, for the block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give(connection)

    def drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:  # another thread was faster
                return

    def close(self) -> None:
        """Connections in use are closed after their use."""
        self._closed = True
        self.drop_idle()
