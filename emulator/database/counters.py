"""Open answers, requests per minute and tokens per window, exact over all processes.

Each count is one statement without a lock, by the database's clock. Requests per minute are counted by GCRA
(ITU-T I.371), in one row for each key: the time at which its whole limit is free again. A request moves that
time by its share of the minute, and is refused if it would then be more than a minute ahead. So a client may
send its whole limit at once, and then one request for each share that passes.

While the database fails, each process counts for itself in its own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

import structlog

from emulator.core import metrics
from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database
from emulator.database.leases import Leases
from emulator.database.tidying import Removal, Tidying

log = structlog.get_logger()

TABLES = (
    "CREATE TABLE IF NOT EXISTS rates (key TEXT PRIMARY KEY, free DOUBLE PRECISION NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS spent (key TEXT PRIMARY KEY, tokens BIGINT NOT NULL, "
        "until DOUBLE PRECISION NOT NULL)"
    ),
)
"""The version before counts requests in a table of their times, which stays unused."""
_WINDOW_SECONDS = 60.0
_MOVED = "CASE WHEN rates.free > {clock} THEN rates.free ELSE {clock} END + :share"
_HIT = (
    "INSERT INTO rates (key, free) VALUES (:key, {clock} + :share) ON CONFLICT (key) DO UPDATE "
    f"SET free = {_MOVED} WHERE {_MOVED} <= {{clock}} + :window RETURNING free - {{clock}}"
)
_AHEAD = "SELECT free - {clock} FROM rates WHERE key = :key"
_SPEND = (
    "INSERT INTO spent (key, tokens, until) VALUES (:key, :tokens, :until) ON CONFLICT (key) DO UPDATE SET "
    "tokens = excluded.tokens + CASE WHEN spent.until > :now THEN spent.tokens ELSE 0 END, "
    "until = CASE WHEN spent.until > :now THEN spent.until ELSE excluded.until END"
)

_OLD = ":now - 60"
"""Later than it is needed: clocks differ."""
_EXPIRED = tuple(
    Removal(
        f"SELECT DISTINCT {key} FROM {table} WHERE {end} < {_OLD}",
        f"DELETE FROM {table} WHERE {end} < {_OLD} AND {key} IN ({{keys}})",
    )
    for table, key, end in (
        ("rates", "key", "free"),
        ("spent", "key", "until"),
        ("leases", "name", "until"),
    )
)

T = TypeVar("T")


class Rate(NamedTuple):
    """A client's requests per minute, as the answer's headers report them."""

    allowed: bool
    remaining: int
    """Requests that the client may send immediately."""
    reset_seconds: float
    """Until it may send its whole limit."""
    retry_seconds: float
    """Until it may send one request."""


counted_alone: ContextVar[bool] = ContextVar("counted_alone", default=False)
"""Whether the limits of the current request were counted by this process alone."""


class Counters:
    """Safe to share between threads."""

    def __init__(self, database: Database, leases: Leases, own: Database) -> None:
        """``own`` is in the memory of this process."""
        self._databases = (database, own)
        self._leases = {database: leases, own: Leases(own)}
        self._tidying = Tidying(database, "counters", *_EXPIRED)

    def open(self, key: str, limit: int, seconds: float) -> Callable[[], None] | None:
        """One of ``limit`` places of ``key``: the function that releases it, or None after ``seconds``."""
        lease = self._count(lambda database: self._leases[database].take(key, limit, seconds))
        return None if lease is None else lease.release_later

    def hit(self, key: str, limit: int) -> Rate:
        """Count a request, unless ``key`` has no request left of the ``limit`` per minute."""
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
        self._tidying.count()
        try:
            return count(database)
        except DatabaseFailed as error:
            metrics.LIMITS_ALONE.inc()
            counted_alone.set(True)
            log.warning("the database is unavailable: this process counts alone", reason=str(error))
            return count(own)


def _hit(database: Database, key: str, limit: int) -> Rate:
    share = _WINDOW_SECONDS / limit
    values = {"key": key, "share": share, "window": _WINDOW_SECONDS, "now": database.now()}
    rows = database.execute(_HIT.format(clock=database.clock), values, writes=True).rows
    allowed = bool(rows)
    if not allowed:
        rows = database.all(_AHEAD.format(clock=database.clock), **values) or [(0.0,)]
    ahead = max(0.0, rows[0][0])
    remaining = int((_WINDOW_SECONDS - ahead) / share + 1e-6) if allowed else 0
    return Rate(allowed, remaining, ahead, max(0.0, ahead + share - _WINDOW_SECONDS))
