"""A database in one file, in WAL mode; or in memory.

Readers do not wait for writers. Writers of one process take turns, and wait at most `SECONDS` for that and
for writers of other processes together. Nobody else has a database in memory: its users wait in turn.

If a process is killed, everything is there that was written before; if the machine loses power, the last
moments may be lost, never the file.

``FILE-reserved`` occupies the disk space that a removal needs at first, so that a full disk can be emptied.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from emulator.database.availability import PROBE_SECONDS, DatabaseFailed
from emulator.database.database import SECONDS, Database, Result, Rows
from emulator.database.pool import Pool

MEMORY = ":memory:"
_CONNECTIONS = 16
_LONG_SECONDS = 60.0
_RESERVED_BYTES = 512 * 1024


class SQLite(Database):
    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._has_file = path != MEMORY
        self.path = path
        self._now = now
        self._writing = threading.Lock()
        self._removes = False
        # A second connection to memory would be another database.
        most = _CONNECTIONS if self._has_file else 1
        self._pool = Pool(self._connect, most)
        self._seconds = SECONDS if self._has_file else _LONG_SECONDS

    def make_file(self) -> None:
        """Raises `DatabaseFailed`."""
        try:
            if self._has_file:
                # It has conversations, which other users of the machine must not read.
                # SQLite gives its -wal and -shm files the mode of this file.
                Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                Path(self.path).touch(mode=0o600)
                self._reserve()
            self.execute("PRAGMA journal_mode=WAL", {}, writes=True)
        except OSError as error:
            raise DatabaseFailed(f"{self.path}: {error}", passes=False) from error

    def execute(self, query: str, values: Mapping[str, Any], *, writes: bool) -> Result:
        with self._connection(writes=writes) as connection:
            return _execute(connection, query, values)

    @contextmanager
    def transaction(self, lock: str = "") -> Iterator[Rows]:  # noqa: ARG002 (one writes at a time)
        with self._connection(writes=True) as connection:
            # IMMEDIATE: nobody else writes between this block's reads and its writes.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Rows(partial(_execute, connection), self.now(), self._release_reserve)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        if self._removes:
            self._reserve()

    def now(self) -> float:
        return self._now()

    def close(self) -> None:
        self._pool.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, check_same_thread=False, isolation_level=None, timeout=SECONDS
        )
        try:
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA secure_delete=ON")  # overwrites what is removed
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[sqlite3.Connection]:
        """A connection for the block. Raises `DatabaseFailed` if it or the block fails."""
        part = "writers" if writes else "readers"
        seconds = PROBE_SECONDS if self.availability.is_probe(part) else self._seconds
        try:
            connection = self._take_to_write(seconds) if writes else self._take(seconds)
            try:
                yield connection
            except (sqlite3.Error, UnicodeEncodeError) as error:
                raise _failure(error) from error
            finally:
                self._give(connection, writes=writes)
        except DatabaseFailed as failure:
            if failure.passes and self._has_file:
                self.availability.report_failure(part)
            raise
        self.availability.report_success(part)

    def _take(self, seconds: float) -> sqlite3.Connection:
        """A connection, which `_give` must follow."""
        try:
            return self._pool.take(seconds)
        except sqlite3.Error as error:
            raise _failure(error) from error

    def _take_to_write(self, seconds: float) -> sqlite3.Connection:
        """As `_take`, for one thread of this process; others wait until `_give`."""
        until = time.monotonic() + seconds
        if not self._writing.acquire(timeout=seconds):
            raise DatabaseFailed(f"{self.path} was locked for {seconds:g} s")
        try:
            connection = self._take(until - time.monotonic())
        except BaseException:
            self._writing.release()
            raise
        # What is left of the time is for other processes.
        connection.execute(f"PRAGMA busy_timeout={max(0, int(1000 * (until - time.monotonic())))}")
        return connection

    def _give(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        self._pool.give(connection)
        if writes:
            self._writing.release()

    def _reserve(self) -> None:
        """Occupy disk space for the next removal. If the disk is full now, a later call may succeed."""
        self._removes = False
        with suppress(OSError):
            reserved = Path(f"{self.path}-reserved")
            reserved.touch(mode=0o600)
            if reserved.stat().st_size < _RESERVED_BYTES:
                reserved.write_bytes(bytes(_RESERVED_BYTES))

    def _release_reserve(self) -> None:
        if self._has_file:
            self._removes = True
            with suppress(OSError):
                os.truncate(f"{self.path}-reserved", 0)


def _execute(connection: sqlite3.Connection, query: str, values: Mapping[str, Any]) -> Result:
    cursor = connection.execute(query, values)
    return Result(cursor.fetchall(), cursor.rowcount)


def _failure(error: Exception) -> DatabaseFailed:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    passes = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    of_disk = code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)
    return DatabaseFailed(str(error), passes=passes, of_disk=of_disk)
