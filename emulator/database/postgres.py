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
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import structlog

from emulator.database.availability import RETRY_SECONDS, DatabaseFailed
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
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(\w+)")


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
        with self._connection() as connection:
            return self._execute(connection, query, values)

    @contextmanager
    def transaction(self, lock: str = "") -> Iterator[Rows]:
        with self._connection() as connection:
            try:
                begun = self._execute(connection, _BEGIN.format(lock=_lock_number(lock)), {})
                yield Rows(
                    lambda query, values: self._execute(connection, query, values),
                    float(begun.rows[0][1]),
                )
                self._execute(connection, "COMMIT", {})
            except BaseException:
                with suppress(self._psycopg.Error):  # then its connection is closed
                    self._execute(connection, "ROLLBACK", {})
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
    def _connection(self) -> Iterator[Any]:
        """A connection for the block. Raises `DatabaseFailed` if it or the block fails."""
        self.availability.check(_SERVER)
        connection = None
        try:
            with self._pool.connection() as connection:
                yield connection
        except self._psycopg.Error as error:
            if connection is None or connection.closed:
                self.availability.report_failure(_SERVER)
            # Only in the log: the driver's message has addresses and user names.
            log.warning("database", reason=str(error))
            is_full = isinstance(error, self._psycopg.errors.DiskFull)
            name = type(error).__name__
            raise DatabaseFailed(f"PostgreSQL: {name}", passes=not is_full) from error
        self.availability.report_success(_SERVER)

    def _execute(self, connection: Any, query: str, values: Mapping[str, Any]) -> Result:
        # Its texts have no NUL; nothing that is stored has one in its place.
        bound = {
            name: value.replace("\0", "\ufffd") if isinstance(value, str) else value
            for name, value in values.items()
        }
        text, table = _translated(query)
        self.availability.check(table)
        errors = self._psycopg.errors
        with connection.cursor() as cursor:
            try:
                with self._watchdog.watching(connection):
                    cursor.execute(text, bound or None)
            except (errors.LockNotAvailable, errors.QueryCanceled):
                if table:
                    self.availability.report_failure(table)
                raise
            self.availability.report_success(table)
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
