"""A PostgreSQL database, for replicas on several machines.

A statement by itself is one round trip. A transaction takes an advisory lock first (PostgreSQL, 13.3.5),
which ends with it, also if its replica dies.

No statement is without a deadline. The server ends one that waits for a lock, one that takes too long, and a
transaction that is silent; the watchdog ends the connection to a server that does not answer at all. The
settings are made in each new connection: PgBouncer refuses them as options of the connection's start. Whether
a statement ran whose connection broke is unknown, so it is not repeated here.
"""

from __future__ import annotations

import hashlib
import math
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

import structlog

from emulator.database.availability import PROBE_SECONDS, RETRY_SECONDS, DatabaseFailed
from emulator.database.database import Database, Result, Rows
from emulator.database.watchdog import Watchdog

log = structlog.get_logger()

_CONNECTIONS = (4, 24)
_CONNECT_SECONDS = 2
"""For a new connection, and for one that is free."""
_LOCK_SECONDS = 3
_STATEMENT_SECONDS = 5
_SILENT_SECONDS = 6
"""Longer than a server that answers takes to end a statement."""
_IDLE_SECONDS = 10
"""A replica that is silent this long within a transaction counts as dead: its machine may have vanished."""
_CONFIGURE = (
    f"SET lock_timeout = '{_LOCK_SECONDS}s'; SET statement_timeout = '{_STATEMENT_SECONDS}s'; "
    f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"
)
_HURRY = f"SET lock_timeout = '{1000 * PROBE_SECONDS:.0f}ms'"
_BEGIN = (
    "BEGIN; SELECT pg_advisory_xact_lock({lock}), extract(epoch FROM clock_timestamp())::float8"
)
_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 1000 * _SILENT_SECONDS,
}
"""A database whose machine has vanished is noticed within seconds (libpq, 32.1.2)."""
_SERVER = "server"
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(\w+)\b(?!\()")
_SHARE = 18
"""Of the connections, those that may wait for one table or lock: the others are for the rest."""


class Postgres(Database):
    clock = "extract(epoch FROM clock_timestamp())::float8"

    def __init__(self, url: str, now: Callable[[], float] = time.time) -> None:
        """``url`` is a connection URI of libpq. Connects in the background. Raises `DatabaseFailed`."""
        try:
            import psycopg
            from psycopg_pool import ConnectionPool
        except ImportError as error:
            message = "postgresql:// needs psycopg: pip install 'psycopg[binary,pool]'"
            raise DatabaseFailed(message) from error
        super().__init__()
        self._hurried: set[Any] = set()
        """The connections on which a probe has changed the time to wait for locks."""
        self._shares: dict[str, threading.BoundedSemaphore] = {}
        self._psycopg: Any = psycopg
        self._now = now
        self._watchdog = Watchdog(_SILENT_SECONDS)
        least, most = _CONNECTIONS
        self._pool: Any = ConnectionPool(
            url,
            kwargs={"autocommit": True, "connect_timeout": _CONNECT_SECONDS, **_ALIVE},
            min_size=least,
            max_size=most,
            open=True,
            configure=self._configure,
            check=self._check_alive,
            name="database",
            timeout=_CONNECT_SECONDS,
            reconnect_timeout=RETRY_SECONDS,
            num_workers=least,
        )

    def execute(self, query: str, values: Mapping[str, Any], *, writes: bool) -> Result:  # noqa: ARG002
        _, table = _translated(query)
        with self._share(table), self._connection() as execute:
            return execute(query, values)

    @contextmanager
    def transaction(self, lock: str = "") -> Iterator[Rows]:
        part = f"lock {lock}"
        with self._share(part), self._connection() as execute:
            try:
                begun = execute(_BEGIN.format(lock=_lock_number(lock)), {}, part)
                yield Rows(execute, float(begun.rows[0][1]))
                execute("COMMIT", {})
            except BaseException:
                with suppress(self._psycopg.Error):  # then its connection is closed
                    execute("ROLLBACK", {})
                raise

    def now(self) -> float:
        return self._now()

    def close(self) -> None:
        self._pool.close()
        self._watchdog.close()

    def _configure(self, connection: Any) -> None:
        with self._watchdog.watching(connection):
            connection.execute(_CONFIGURE)
        self.availability.report_success(_SERVER)

    def _check_alive(self, connection: Any) -> None:
        """Raises an error of psycopg if the server has ended an idle connection: its socket has the news."""
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        try:
            while poll.poll(0):
                connection.pgconn.consume_input()
        except self._psycopg.Error:
            connection.close()
            self._pool.drain()  # a server that restarts ends all of them
            raise

    @contextmanager
    def _share(self, part: str) -> Iterator[None]:
        """One of the connections that may be used for ``part``. Raises `DatabaseFailed`."""
        share = self._shares.setdefault(part, threading.BoundedSemaphore(_SHARE))
        if not share.acquire(timeout=_CONNECT_SECONDS):
            raise DatabaseFailed(f"{_SHARE} other statements wait")
        try:
            yield
        finally:
            share.release()

    @contextmanager
    def _connection(self) -> Iterator[Callable[..., Result]]:
        """What executes statements on one connection. Raises `DatabaseFailed` if it or the block fails."""
        is_probe = self.availability.is_probe(_SERVER)
        connection = None
        try:
            with self._pool.connection(PROBE_SECONDS if is_probe else None) as connection:
                try:
                    yield partial(self._execute, connection, hurries=is_probe)
                finally:
                    if connection in self._hurried:
                        self._hurried.discard(connection)
                        self._configure(connection)
        except (self._psycopg.Error, UnicodeEncodeError) as error:
            is_lost = not self._is_busy() if connection is None else connection.closed
            if is_lost:
                self.availability.report_failure(_SERVER)
            # Only in the log: the driver's message has addresses and user names.
            log.warning("database", reason=str(error))
            is_full = isinstance(error, self._psycopg.errors.DiskFull)
            passes = not (is_full or isinstance(error, UnicodeEncodeError))
            reason = f"PostgreSQL: {type(error).__name__}"
            raise DatabaseFailed(reason, passes=passes, of_disk=is_full) from error
        self.availability.report_success(_SERVER)

    def _is_busy(self) -> bool:
        """Whether statements have all connections, which says nothing about the server."""
        pool = self._pool.get_stats()
        return pool["pool_size"] >= _CONNECTIONS[1] and not pool["pool_available"]

    def _execute(
        self,
        connection: Any,
        query: str,
        values: Mapping[str, Any],
        part: str = "",
        *,
        hurries: bool,
    ) -> Result:
        """``part`` is the part that may fail, if it is not the table."""
        # Its texts have no NUL; nothing that is stored has one in its place.
        bound = {
            name: value.replace("\0", "\ufffd") if isinstance(value, str) else value
            for name, value in values.items()
        }
        text, table = _translated(query)
        part = part or table
        is_probe = self.availability.is_probe(part)
        # A server that only is slow must be found to answer.
        seconds = _CONNECT_SECONDS if hurries else math.inf
        errors = self._psycopg.errors
        with connection.cursor() as cursor:
            try:
                with self._watchdog.watching(connection, seconds):
                    if is_probe:
                        self._hurried.add(connection)
                        cursor.execute(_HURRY)
                    cursor.execute(text, bound or None)
            except (errors.LockNotAvailable, errors.QueryCanceled):
                if part:
                    self.availability.report_failure(part)
                raise
            self.availability.report_success(part)
            while cursor.nextset():
                pass
            return Result(cursor.fetchall() if cursor.description else (), cursor.rowcount)


@lru_cache(maxsize=512)
def _translated(query: str) -> tuple[str, str]:
    """The query with ``:name`` as psycopg has it, and the first table that it names, or ""."""
    table = _TABLE.search(query)
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", query), table[1] if table else ""


def _lock_number(name: str) -> int:
    digest = hashlib.blake2b(b"emulator:" + name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
