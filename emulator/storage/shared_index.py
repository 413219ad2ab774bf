"""The index of files and containers that several replicas share: PostgreSQL, through SQLAlchemy.

As in SQLite, one transaction at a time has the index, of all replicas together: it takes an advisory lock
first (PostgreSQL, 13.3.5). The lock ends with the transaction, also if its replica dies. So what a
transaction reads, above all quotas, does not change before it writes. Knows nothing of what the rows mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from emulator.errors import FileStoreUnavailable, StorageFailed
from emulator.storage.index import CONTENTS, VERSION, Rows

log = structlog.get_logger()

_LOCK = 0x656D756C61746F72
"""Any number that no other program of that database locks."""
_BEGIN = (
    "SELECT set_config('idle_in_transaction_session_timeout', :silent, true), "
    "set_config('lock_timeout', :wait, true), pg_advisory_xact_lock(:lock)"
)
_SILENT_SECONDS = 10
"""A replica that is silent this long within a transaction counts as dead: its machine may have vanished."""
_WAIT_SECONDS = 20
_CONNECT_SECONDS = 5
_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""A database whose machine has vanished is noticed within seconds (libpq, 32.1.2)."""
_CONNECTIONS = 4
"""Open connections. There are more while many requests use the index at the same time."""
_UNAVAILABLE_STATES = {"25P03", "53300", "55P03", "57P01", "57P02", "57P03"}
"""Silent for too long, too many connections, lock not available, shutdown, crash, not ready yet."""
_VERSIONS = "CREATE TABLE IF NOT EXISTS emulator_index (version INTEGER NOT NULL)"


class SharedIndex:
    """Safe to share between threads, not between processes: each opens its own."""

    def __init__(self, url: str) -> None:
        """``url`` is an SQLAlchemy URL of a database that nothing else uses. Raises `StorageFailed`."""
        try:
            import sqlalchemy
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError as error:
            raise StorageFailed(
                "files_index needs SQLAlchemy: pip install sqlalchemy 'psycopg[binary]'"
            ) from error
        self._sql: Any = sqlalchemy
        self._failure: type[Exception] = SQLAlchemyError
        try:
            parsed_url = sqlalchemy.make_url(url)
            if parsed_url.get_backend_name() != "postgresql":
                raise StorageFailed("files_index must be a PostgreSQL database.")
            self._engine: Any = sqlalchemy.create_engine(
                parsed_url,
                pool_size=_CONNECTIONS,
                max_overflow=4 * _CONNECTIONS,
                pool_pre_ping=True,
                connect_args={"connect_timeout": _CONNECT_SECONDS, **_ALIVE},
            )
        except (SQLAlchemyError, ImportError) as error:
            # Without the URL, which may contain a password.
            raise StorageFailed(f"files_index cannot be used: {type(error).__name__}.") from error
        try:
            self._prepare()
        except FileStoreUnavailable as error:
            raise StorageFailed(f"The proxy's index of files failed: {_reason(error)}.") from error

    def _prepare(self) -> None:
        with self.transaction() as rows:
            rows.run(_VERSIONS)
            versions = {version for (version,) in rows.all("SELECT version FROM emulator_index")}
            if versions - {VERSION}:
                raise StorageFailed(f"The index of files is of another version than {VERSION}.")
            if not versions:
                rows.run("INSERT INTO emulator_index VALUES (:version)", version=VERSION)
            rows.run(CONTENTS)

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        try:
            with self._engine.begin() as connection:
                rows = Rows(
                    lambda query, values: connection.execute(self._sql.text(query), values),
                    lambda: None,
                )
                rows.one(_BEGIN, silent=f"{_SILENT_SECONDS}s", wait=f"{_WAIT_SECONDS}s", lock=_LOCK)
                yield rows
        except self._failure as error:
            if self._is_unavailable(error):
                # Only in the log: the driver's message has addresses and user names.
                log.warning("index of files unavailable", reason=_reason(error))
                raise FileStoreUnavailable("The proxy's files are unavailable now.") from error
            raise StorageFailed(f"The proxy's index of files failed: {_reason(error)}.") from error

    def _is_unavailable(self, error: Exception) -> bool:
        """Return True if there is no server, or it does not serve now (PostgreSQL, appendix A)."""
        if isinstance(error, self._sql.exc.TimeoutError):
            return True  # no connection became free
        if not isinstance(error, self._sql.exc.DBAPIError):
            return False
        code = getattr(error.orig, "sqlstate", None)
        if code is None:  # the error is the driver's, not the server's
            return isinstance(error, self._sql.exc.OperationalError | self._sql.exc.InterfaceError)
        return error.connection_invalidated or code in _UNAVAILABLE_STATES

    def close(self) -> None:
        self._engine.dispose()


def _reason(error: BaseException) -> str:
    """The driver's message, without the query and its values."""
    if isinstance(error, FileStoreUnavailable) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
