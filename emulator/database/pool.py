"""Connections to an SQLite database: made when they are needed, each used by one thread at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from emulator.database.availability import DatabaseFailed


class Pool:
    """Safe to share between threads."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], most: int) -> None:
        self._connect = connect
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def take(self, seconds: float) -> sqlite3.Connection:
        """A connection, which `give` must follow.

        Raises `DatabaseFailed` if none is free for ``seconds``, and what connecting raises.
        """
        if not self._free.acquire(timeout=max(0.0, seconds)):
            raise DatabaseFailed(f"all connections were in use for {seconds:g} s")
        try:
            return self._idle.pop()
        except IndexError:
            try:
                return self._connect()
            except BaseException:
                self._free.release()
                raise

    def give(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction or self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        self._free.release()

    def close(self) -> None:
        """Connections in use are closed after their use."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
