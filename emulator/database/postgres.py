"""A PostgreSQL database, for replicas on several machines.

    usable ── connecting fails ──► paused for `PAUSE_SECONDS`: everything fails immediately ──► usable

A statement by itself is one round trip. A transaction takes an advisory lock first (PostgreSQL, 13.3.5),
which ends with it, also if its replica dies.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import structlog

from emulator.database.database import Database, DatabaseFailed, Result, Rows
from emulator.database.pool import Pool

log = structlog.get_logger()

_CONNECTIONS = 24
PAUSE_SECONDS = 5.0
_CONNECT_SECONDS = 2
_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""A database whose machine has vanished is noticed within seconds (libpq, 32.1.2)."""
_SILENT = "10s"
"""A replica that is silent this long within a transaction counts as dead: its machine may have vanished."""
_WAIT = "5s"
"""For a lock: 32 requests that count in turn, each with three round trips of 50 ms."""
_BEGIN = (
    "SELECT extract(epoch FROM clock_timestamp())::float8, "
    "set_config('idle_in_transaction_session_timeout', :silent, true), "
    "set_config('lock_timeout', :wait, true), pg_advisory_xact_lock(:lock)"
)


class _Stale(Exception):
    """The server has ended the connection."""


class Postgres(Database):
    def __init__(self, url: str, now: Callable[[], float] = time.time) -> None:
        """``url`` is a connection URI of libpq. Raises `DatabaseFailed`."""
        try:
            import psycopg
        except ImportError as error:
            message = "postgresql:// needs psycopg: pip install 'psycopg[binary]'"
            raise DatabaseFailed(message) from error
        self._psycopg: Any = psycopg
        self._url = url
        self._now = now
        self._paused_until = 0.0
        self._pool = Pool(self._connect, _CONNECTIONS, lambda connection: not connection.closed)

    def execute(self, query: str, values: Mapping[str, Any], *, writes: bool) -> Result:  # noqa: ARG002
        with self._failures():
            try:
                return self._execute(query, values)
            except _Stale:
                self._pool.drop_idle()
                return self._execute(query, values)

    @contextmanager
    def transaction(self, lock: str = "") -> Iterator[Rows]:
        with self._failures(), ExitStack() as opened:
            try:
                connection, now = self._begin(opened, lock)
            except _Stale:
                self._pool.drop_idle()
                connection, now = self._begin(opened, lock)
            yield Rows(lambda query, values: _execute(connection, query, values), now)

    def now(self) -> float:
        return self._now()

    def close(self) -> None:
        self._pool.close()

    def _execute(self, query: str, values: Mapping[str, Any]) -> Result:
        with self._pool.connection() as connection, self._stale(connection):
            return _execute(connection, query, values)

    def _begin(self, opened: ExitStack, lock: str) -> tuple[Any, float]:
        """A connection in a transaction, and the database's time. ``opened`` commits."""
        with ExitStack() as begun:
            connection = begun.enter_context(self._pool.connection())
            with self._stale(connection):
                begun.enter_context(connection.transaction())
                values = {"silent": _SILENT, "wait": _WAIT, "lock": _lock_number(lock)}
                now = float(_execute(connection, _BEGIN, values).rows[0][0])
            opened.push(begun.pop_all())
            return connection, now

    @contextmanager
    def _stale(self, connection: Any) -> Iterator[None]:
        """Raises `_Stale` if the server has ended this connection, perhaps long ago."""
        try:
            yield
        except self._psycopg.OperationalError as error:
            if connection.closed:
                raise _Stale(str(error)) from error
            raise

    def _connect(self) -> Any:
        if time.monotonic() < self._paused_until:
            raise DatabaseFailed(f"it was unreachable less than {PAUSE_SECONDS:g} s ago")
        try:
            return self._psycopg.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS, **_ALIVE
            )
        except self._psycopg.OperationalError:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (self._psycopg.Error, _Stale) as error:
            # Only in the log: the driver's message has addresses and user names.
            log.warning("database", reason=str(error))
            is_full = isinstance(error, self._psycopg.errors.DiskFull)
            raise DatabaseFailed(
                f"PostgreSQL: {type(error.__cause__ or error).__name__}", passes=not is_full
            ) from error


def _execute(connection: Any, query: str, values: Mapping[str, Any]) -> Result:
    # Its texts have no NUL; nothing that is stored has one in its place.
    bound = {
        name: value.replace("\0", "\ufffd") if isinstance(value, str) else value
        for name, value in values.items()
    }
    with connection.cursor() as cursor:
        cursor.execute(_translated(query), bound)
        return Result(cursor.fetchall() if cursor.description else (), cursor.rowcount)


@lru_cache(maxsize=512)
def _translated(query: str) -> str:
    """``:name`` as psycopg has it."""
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", query)


def _lock_number(name: str) -> int:
    digest = hashlib.blake2b(b"emulator:" + name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
