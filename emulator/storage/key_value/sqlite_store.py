"""Values under keys in an SQLite file, or in memory."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from emulator.storage.key_value.interface import Change, StoreFailed


class SQLiteStore:
    """One file in WAL mode, or ``:memory:``. Above ``max_bytes`` the oldest values go.

    If the process is killed, everything is there for which `put` has returned. If the machine loses power,
    the last moments may be lost, never the file. Several processes may share a file.
    """

    def __init__(
        self,
        path: str,
        *,
        ttl_seconds: float,
        max_bytes: int = 256 * 2**20,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises `StoreFailed`."""
        self._ttl = ttl_seconds
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.Lock()
        try:
            if path != ":memory:":
                # It has conversations, which other users of the machine must not read.
                # SQLite gives its -wal and -shm files the mode of this file.
                Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                Path(path).touch(mode=0o600)
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=5)
            with self._connection as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute("PRAGMA secure_delete=ON")  # overwrites expired values
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS kept "
                    "(key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL NOT NULL)"
                )
                connection.execute("CREATE INDEX IF NOT EXISTS kept_expires ON kept (expires)")
                self._page_size = _pragma(connection, "page_size")
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{path}: {error}") from error

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        until = self._now() + (self._ttl if seconds is None else seconds)
        rows = [(key, value, until) for key, value in values.items()]
        with self._locked() as connection, connection:
            self._put(connection, rows)

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        until = self._now() + (self._ttl if seconds is None else seconds)
        with self._locked() as connection, connection:
            # IMMEDIATE: no other process writes between this read and this write.
            connection.execute("BEGIN IMMEDIATE")
            self._put(connection, [(key, change(self._value(key)), until)])

    def get(self, key: str) -> bytes | None:
        with self._locked():
            return self._value(key)

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        query = (
            "SELECT key, CAST(value AS BLOB) FROM kept "
            "WHERE key IN (SELECT value FROM json_each(?)) AND expires >= ?"
        )
        with self._locked() as connection, closing(connection.cursor()) as cursor:
            return dict(cursor.execute(query, (json.dumps([*keys]), self._now())))

    def delete(self, keys: Collection[str]) -> None:
        with self._locked() as connection, connection:
            connection.executemany("DELETE FROM kept WHERE key = ?", [(key,) for key in keys])

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone. Raises `StoreFailed`."""
        try:
            with self._lock:
                yield self._connection
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def _put(self, connection: sqlite3.Connection, rows: list[tuple[str, bytes, float]]) -> None:
        connection.execute("DELETE FROM kept WHERE expires < ?", (self._now(),))
        connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
        self._make_room(connection)

    def _value(self, key: str) -> bytes | None:
        with closing(self._connection.cursor()) as cursor:
            query = "SELECT CAST(value AS BLOB) FROM kept WHERE key = ? AND expires >= ?"
            row = cursor.execute(query, (key, self._now())).fetchone()
        return row[0] if row else None

    def _make_room(self, connection: sqlite3.Connection) -> None:
        while (excess := self._used(connection) - self._max_bytes) > 0:
            evicted = list(_oldest(connection, excess))
            if not evicted:
                return
            connection.executemany("DELETE FROM kept WHERE key = ?", evicted)

    def _used(self, connection: sqlite3.Connection) -> int:
        """Bytes of the pages in use. Adding up the lengths of values would read all rows in each `put`."""
        pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
        return pages * self._page_size


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _oldest(connection: sqlite3.Connection, wanted: int) -> Iterator[tuple[str]]:
    """The keys that were stored first, until their rows have ``wanted`` bytes.

    Not the keys that expire first: then long-lived values would displace all others.
    """
    query = "SELECT key, length(key) + length(value) FROM kept ORDER BY rowid"
    for key, length in connection.execute(query):
        if wanted <= 0:
            return
        wanted -= length
        yield (key,)
