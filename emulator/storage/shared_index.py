"""The index of files and containers that several replicas share: PostgreSQL, through SQLAlchemy.

One transaction at a time has the index, of all replicas, as one has SQLite's: it takes an advisory lock
first (PostgreSQL, 13.3.5), which ends with it, also if its replica dies. So nothing that is read there,
quotas above all, changes before it is written. Knows nothing of what the rows mean.
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
"""The number of the lock; any that no other program of that database takes."""
_BEGIN = (
    "SELECT set_config('idle_in_transaction_session_timeout', :silent, true), "
    "set_config('lock_timeout', :wait, true), pg_advisory_xact_lock(:lock)"
)
_SILENT_SECONDS = 10
"""After which the database takes a replica that has the lock for dead: its machine may have vanished."""
_WAIT_SECONDS = 20
_CONNECT_SECONDS = 5
_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""So that a database whose machine has vanished is found away in seconds (libpq, 32.1.2)."""
_CONNECTIONS = 4
"""Kept open; there are more while many requests ask at once."""
_SERVES_NOBODY = {"25P03", "53300", "55P03", "57P01", "57P02", "57P03"}
"""Silent for too long, too many connections, another has the lock, shutdown, crash, not ready yet."""
_VERSIONS = "CREATE TABLE IF NOT EXISTS emulator_index (version INTEGER NOT NULL)"


class SharedIndex:
    """Safe to share between threads, not between processes: each opens its own."""

    def __init__(self, url: str) -> None:
        """``url`` is SQLAlchemy's, of a database that nothing else is in. Raises `StorageFailed`."""
        try:
            import sqlalchemy
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError as error:
            raise StorageFailed(
                "files_index needs SQLAlchemy: pip install 'tool-use-api-emulator[shared]'"
            ) from error
        self._sql: Any = sqlalchemy
        self._failure: type[Exception] = SQLAlchemyError
        try:
            where = sqlalchemy.make_url(url)
            if where.get_backend_name() != "postgresql":
                raise StorageFailed("files_index must be a database of PostgreSQL.")
            self._engine: Any = sqlalchemy.create_engine(
                where,
                pool_size=_CONNECTIONS,
                max_overflow=4 * _CONNECTIONS,
                pool_pre_ping=True,
                connect_args={"connect_timeout": _CONNECT_SECONDS, **_ALIVE},
            )
        except (SQLAlchemyError, ImportError) as error:
            # Not what was given: a URL that cannot be read may hold a password.
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
            if self._is_away(error):
                # Not to clients: the driver tells addresses and users.
                log.warning("index of files away", reason=_reason(error))
                raise FileStoreUnavailable(
                    "The proxy's files cannot be reached just now."
                ) from error
            raise StorageFailed(f"The proxy's index of files failed: {_reason(error)}.") from error

    def _is_away(self, error: Exception) -> bool:
        """Whether there is no server, or it does not serve just now (PostgreSQL, appendix A)."""
        if isinstance(error, self._sql.exc.TimeoutError):
            return True  # no connection became free
        if not isinstance(error, self._sql.exc.DBAPIError):
            return False
        code = getattr(error.orig, "sqlstate", None)
        if code is None:  # the driver's own word, not the server's
            return isinstance(error, self._sql.exc.OperationalError | self._sql.exc.InterfaceError)
        return error.connection_invalidated or code in _SERVES_NOBODY

    def close(self) -> None:
        self._engine.dispose()


def _reason(error: BaseException) -> str:
    """What the driver says, without the query and its values."""
    if isinstance(error, FileStoreUnavailable) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
