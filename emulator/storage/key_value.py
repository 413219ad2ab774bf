"""Keep values between requests under keys, for a while. Knows nothing of what they mean.

SQLite by default (a file survives a restart), Redis for several replicas, memory for tests. What is
stored is JSON, never pickle. A store that fails costs a model turn, not an answer.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import structlog

log = structlog.get_logger()

MAX_VALUE_BYTES = 4 * 2**20

# A Redis that cannot be reached is left alone for so long: each try may cost a time-out.
REST_SECONDS = 5.0
_REDIS_SECONDS = 1.0
_KEYS_AT_ONCE = 500


class StoreFailed(Exception):
    """The store cannot be reached or used just now."""


Change = Callable[[bytes | None], bytes]


class KeyValueStore(Protocol):
    """Safe to share between threads."""

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        """Keep values, for ``seconds`` or as long as the store keeps what says nothing.

        Raises `StoreFailed`.
        """

    def get(self, key: str) -> bytes | None:
        """What was put under ``key``, unless it has expired. Raises `StoreFailed`."""

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        """What was put under those of ``keys`` that hold something. Raises `StoreFailed`."""

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        """Put what ``change`` makes of the value under ``key``; nobody else changes it meanwhile.

        ``change`` gets None for no value, and may be called again. Raises what it raises, and `StoreFailed`.
        """

    def delete(self, keys: Collection[str]) -> None:
        """Forget what was put under ``keys``, if anything was. Raises `StoreFailed`."""

    def close(self) -> None: ...


class SQLiteStore:
    """One file in WAL mode, or ``:memory:``. The oldest values give way when its pages exceed ``max_bytes``.

    A process that is killed loses nothing that `put` has returned from; a machine that loses power may
    lose the last moments, never the file. Several processes may share a file.
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
                # Conversations pass through here: they are nobody else's business.
                # SQLite gives its -wal and -shm files the mode of the first one.
                Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                Path(path).touch(mode=0o600)
            self._connection = sqlite3.connect(path, check_same_thread=False, timeout=5)
            with self._connection as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute("PRAGMA secure_delete=ON")  # what has expired is overwritten
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS kept "
                    "(key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL NOT NULL)"
                )
                connection.execute("CREATE INDEX IF NOT EXISTS kept_expires ON kept (expires)")
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{path}: {error}") from error

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        until = self._now() + (self._ttl if seconds is None else seconds)
        rows = [(key, value, until) for key, value in values.items()]
        try:
            with self._lock, self._connection as connection:
                self._put(connection, rows)
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        until = self._now() + (self._ttl if seconds is None else seconds)
        try:
            with self._lock, self._connection as connection:
                # For writing at once: what is read stays true until it is written.
                connection.execute("BEGIN IMMEDIATE")
                self._put(connection, [(key, change(self._value(key)), until)])
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def get(self, key: str) -> bytes | None:
        try:
            with self._lock:
                return self._value(key)
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for some in _portions(keys):
            marks = ", ".join("?" * len(some))
            query = (
                f"SELECT key, CAST(value AS BLOB) FROM kept WHERE key IN ({marks}) AND expires >= ?"
            )
            try:
                with self._lock, closing(self._connection.cursor()) as cursor:
                    found |= dict(cursor.execute(query, (*some, self._now())).fetchall())
            except sqlite3.Error as error:
                raise StoreFailed(str(error)) from error
        return found

    def delete(self, keys: Collection[str]) -> None:
        try:
            with self._lock, self._connection as connection:
                connection.executemany("DELETE FROM kept WHERE key = ?", [(key,) for key in keys])
        except sqlite3.Error as error:
            raise StoreFailed(str(error)) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()

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
            gone = list(_oldest(connection, excess))
            if not gone:
                return
            connection.executemany("DELETE FROM kept WHERE key = ?", gone)

    @staticmethod
    def _used(connection: sqlite3.Connection) -> int:
        """Bytes of the pages in use. Adding up the values' lengths would read all rows at each `put`."""
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def _oldest(connection: sqlite3.Connection, wanted: int) -> Iterator[tuple[str]]:
    """The keys that were put first and whose rows fill ``wanted`` bytes.

    Not those that expire first: values that live long would drive out all others.
    """
    query = "SELECT key, length(key) + length(value) FROM kept ORDER BY rowid"
    for key, length in connection.execute(query):
        if wanted <= 0:
            return
        wanted -= length
        yield (key,)


def _portions(keys: Collection[str]) -> Iterator[list[str]]:
    listed = list(keys)
    for start in range(0, len(listed), _KEYS_AT_ONCE):
        yield listed[start : start + _KEYS_AT_ONCE]


class RedisStore:
    """A Redis that several replicas share; it expires and evicts by itself.

    Nothing is asked of it before the first value, so it may start after the proxy. After a failed try it
    is left alone for `REST_SECONDS`.
    """

    def __init__(
        self, url: str, *, ttl_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `StoreFailed` without the package or with a URL that is none."""
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise StoreFailed("redis:// needs the redis package: pip install redis") from error
        self._ttl = ttl_seconds
        self._now = now
        self._rests_until = 0.0
        self._failure: type[Exception] = redis.RedisError
        self._unreachable = (redis.ConnectionError, redis.TimeoutError)
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=_REDIS_SECONDS,
                socket_connect_timeout=_REDIS_SECONDS,
                # Once, at once: a pooled connection may be one to a server that has restarted.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError as error:
            # What urllib says of a bad URL may quote a piece of the password.
            raise StoreFailed("the redis:// address cannot be read") from error

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        with self._asking(), self._redis.pipeline() as batch:
            for key, value in values.items():
                batch.set(f"emulator:{key}", value, px=milliseconds)
            batch.execute()

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        name = f"emulator:{key}"

        def put(batch: Any) -> None:
            value = batch.get(name)
            made = change(None if value is None else bytes(value))
            batch.multi()
            batch.set(name, made, px=milliseconds)

        with self._asking():
            self._redis.transaction(put, name)  # again, if another has changed it meanwhile

    def get(self, key: str) -> bytes | None:
        with self._asking():
            value = self._redis.get(f"emulator:{key}")
        return bytes(value) if value is not None else None

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for some in _portions(keys):
            with self._asking():
                values = self._redis.mget([f"emulator:{key}" for key in some])
            found |= {k: bytes(v) for k, v in zip(some, values, strict=True) if v is not None}
        return found

    def delete(self, keys: Collection[str]) -> None:
        if keys:
            with self._asking():
                self._redis.delete(*(f"emulator:{key}" for key in keys))

    def close(self) -> None:
        self._redis.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._now() < self._rests_until:
            raise StoreFailed(f"Redis could not be reached less than {REST_SECONDS:g} s ago")
        try:
            yield
        except self._failure as error:
            if isinstance(error, self._unreachable):
                self._rests_until = self._now() + REST_SECONDS
            raise StoreFailed(str(error)) from error


def open_store(url: str, ttl_seconds: float) -> KeyValueStore | None:
    """The store that ``url`` names: ``redis://...``, a file, or ``:memory:``; None if it fails.

    Without a store each request asks the model, which is correct, only slower.
    """
    try:
        if url.startswith(("redis://", "rediss://", "unix://")):
            return RedisStore(url, ttl_seconds=ttl_seconds)
        path = url if url == ":memory:" else str(Path(url).expanduser())
        return SQLiteStore(path, ttl_seconds=ttl_seconds)
    except StoreFailed as error:
        log.warning(
            "store off: programs end with their turn, responses are not kept", reason=str(error)
        )
        return None
