"""Keep programs between requests: values under keys, for a while. Knows nothing of what they mean.

SQLite by default (a file survives a restart), Redis for several replicas, memory for tests. What is
stored is JSON, never pickle. A store that fails costs a model turn, not an answer.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import structlog

log = structlog.get_logger()

MAX_VALUE_BYTES = 4 * 2**20


class StoreFailed(Exception):
    """The store cannot be reached or used just now."""


class Store(Protocol):
    """Safe to share between threads."""

    def put(self, values: Mapping[str, bytes]) -> None:
        """Keep values. Raises `StoreFailed`."""

    def get(self, key: str) -> bytes | None:
        """What was put under ``key``, unless it has expired. Raises `StoreFailed`."""

    def close(self) -> None: ...


class SQLiteStore:
    """One file in WAL mode, or ``:memory:``. The oldest values give way at ``max_bytes``."""

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
                # Conversations pass through here: they are nobody else's business.
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).touch(mode=0o600)
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=5)
            with self._connection as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS kept "
                    "(key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL NOT NULL)"
                )
                connection.execute("CREATE INDEX IF NOT EXISTS kept_expires ON kept (expires)")
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{path}: {error}") from error

    def put(self, values: Mapping[str, bytes]) -> None:
        until = self._now() + self._ttl
        rows = [(key, value, until) for key, value in values.items()]
        try:
            with self._lock, self._connection as connection:
                connection.execute("DELETE FROM kept WHERE expires < ?", (self._now(),))
                connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
                self._make_room(connection)
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def get(self, key: str) -> bytes | None:
        try:
            with self._lock, closing(self._connection.cursor()) as cursor:
                query = "SELECT value FROM kept WHERE key = ? AND expires >= ?"
                row = cursor.execute(query, (key, self._now())).fetchone()
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error
        return row[0] if row else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _make_room(self, connection: sqlite3.Connection) -> None:
        (size,) = connection.execute("SELECT coalesce(sum(length(value)), 0) FROM kept").fetchone()
        while size > self._max_bytes:
            gone = connection.execute(
                "DELETE FROM kept WHERE key IN (SELECT key FROM kept ORDER BY expires LIMIT 64) "
                "RETURNING length(value)"
            ).fetchall()
            if not gone:
                return
            size -= sum(length for (length,) in gone)


class RedisStore:
    """A Redis that several replicas share; it expires and evicts by itself."""

    def __init__(self, url: str, *, ttl_seconds: float) -> None:
        try:
            import redis
        except ImportError as error:
            raise StoreFailed("a redis:// store needs the package redis") from error
        self._ttl = max(1, int(ttl_seconds))
        self._failure: type[Exception] = redis.RedisError
        self._redis: Any = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)

    def put(self, values: Mapping[str, bytes]) -> None:
        try:
            with self._redis.pipeline() as batch:
                for key, value in values.items():
                    batch.set(f"emulator:{key}", value, ex=self._ttl)
                batch.execute()
        except self._failure as error:
            raise StoreFailed(str(error)) from error

    def get(self, key: str) -> bytes | None:
        try:
            value = self._redis.get(f"emulator:{key}")
        except self._failure as error:
            raise StoreFailed(str(error)) from error
        return bytes(value) if value is not None else None

    def close(self) -> None:
        self._redis.close()


def open_store(url: str, ttl_seconds: float) -> Store | None:
    """The store that ``url`` names: ``redis://...``, a file, or ``:memory:``; None if it fails.

    Without a store each request asks the model, which is correct, only slower.
    """
    try:
        if url.startswith(("redis://", "rediss://", "unix://")):
            return RedisStore(url, ttl_seconds=ttl_seconds)
        path = url if url == ":memory:" else str(Path(url).expanduser())
        return SQLiteStore(path, ttl_seconds=ttl_seconds)
    except StoreFailed as error:
        log.warning("store off: programs end with their turn", reason=str(error))
        return None
