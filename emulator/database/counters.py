"""Open requests, requests per minute and tokens per window, exact over all processes.

While the database fails, each process counts for itself in its own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database
from emulator.database.leases import Leases

log = structlog.get_logger()

TABLES = (
    "CREATE TABLE IF NOT EXISTS hits (key TEXT NOT NULL, at DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX IF NOT EXISTS hits_key ON hits (key, at)",
    "CREATE INDEX IF NOT EXISTS hits_at ON hits (at)",
    (
        "CREATE TABLE IF NOT EXISTS spent (key TEXT PRIMARY KEY, tokens BIGINT NOT NULL, "
        "until DOUBLE PRECISION NOT NULL)"
    ),
)
_WINDOW_SECONDS = 60.0
_SPEND = (
    "INSERT INTO spent (key, tokens, until) VALUES (:key, :tokens, :until) ON CONFLICT (key) DO UPDATE SET "
    "tokens = excluded.tokens + CASE WHEN spent.until > :now THEN spent.tokens ELSE 0 END, "
    "until = CASE WHEN spent.until > :now THEN spent.until ELSE excluded.until END"
)

_ALONE = "the database is unavailable: this process counts alone"

T = TypeVar("T")


class Rate(NamedTuple):
    """A client's requests in the last 60 seconds, as the answer's headers report them."""

    allowed: bool
    remaining: int
    """Requests that the client may send immediately."""
    seconds: float
    """Until the oldest counted request stops counting."""


class Counters:
    """Safe to share between threads."""

    def __init__(self, database: Database, leases: Leases, own: Database) -> None:
        """``own`` is in the memory of this process."""
        self._databases = (database, own)
        self._leases = (leases, Leases(own))

    def open(self, key: str, limit: int, seconds: float) -> Callable[[], None] | None:
        """One of ``limit`` places of ``key``: the function that releases it, or None after ``seconds``."""
        leases, own = self._leases
        try:
            lease = leases.take(key, limit, seconds)
        except DatabaseFailed as error:
            log.warning(_ALONE, reason=str(error))
            lease = own.take(key, limit, seconds)
        return None if lease is None else lease.release

    def hit(self, key: str, limit: int) -> Rate:
        """Count a request, unless ``key`` already has ``limit`` requests in the last 60 seconds."""
        return self._count(lambda database: _hit(database, key, limit))

    def spend(self, key: str, tokens: int, seconds: int) -> None:
        """Add tokens to ``key``. The first tokens open a window, which ends after ``seconds``."""

        def spend(database: Database) -> int:
            now = database.now()
            return database.run(_SPEND, key=key, tokens=tokens, now=now, until=now + seconds)

        self._count(spend)

    def now(self) -> float:
        """Unix time."""
        return self._databases[0].now()

    def spent(self, key: str) -> tuple[int, float]:
        """The tokens in the window of ``key``, and the Unix time at which it ends."""

        def read(database: Database) -> tuple[int, float]:
            query = "SELECT tokens, until FROM spent WHERE key = :key AND until > :now"
            return tuple(database.one(query, key=key, now=database.now()) or (0, 0.0))

        return self._count(read)

    def _count(self, count: Callable[[Database], T]) -> T:
        database, own = self._databases
        try:
            return count(database)
        except DatabaseFailed as error:
            log.warning(_ALONE, reason=str(error))
            return count(own)


def _hit(database: Database, key: str, limit: int) -> Rate:
    with database.transaction(f"hits {key}") as rows:
        since = rows.now - _WINDOW_SECONDS
        rows.run("DELETE FROM hits WHERE at <= :since", since=since)
        query = "SELECT count(*), min(at) FROM hits WHERE key = :key AND at > :since"
        count, oldest = rows.one(query, key=key, since=since)
        if allowed := count < limit:
            rows.run("INSERT INTO hits (key, at) VALUES (:key, :at)", key=key, at=rows.now)
            count, oldest = count + 1, rows.now if oldest is None else oldest
        seconds = oldest + _WINDOW_SECONDS - rows.now if oldest is not None else 0.0
        return Rate(allowed, max(0, limit - count), max(0.0, seconds))
