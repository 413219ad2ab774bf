"""The index of stored contents: SQL rows, changed in transactions. Knows nothing of what the rows mean.

`SQLiteIndex` is a file in the folder of one machine; `shared_index` is a database for several replicas.
Both run the same queries, in the SQL that SQLite and PostgreSQL have in common, with ``:name`` for each
value.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emulator.errors import StorageFailed

CONTENTS = "CREATE TABLE IF NOT EXISTS contents (key TEXT PRIMARY KEY, bytes BIGINT NOT NULL)"

# The column by which other tables refer to contents: removing contents removes the row.
CONTENT_COLUMN = "content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE"

VERSION = 1
"""Of the tables. Raise it whenever they change."""

_RESERVED_BYTES = 512 * 1024


@dataclass(frozen=True)
class Content:
    """Contents on the disk, possibly not yet in the index."""

    key: str
    bytes: int


class Rows:
    """The index within one transaction."""

    def __init__(
        self, execute: Callable[[str, dict[str, Any]], Any], release: Callable[[], None]
    ) -> None:
        """``execute`` returns a PEP 249 cursor; ``release`` is called before rows are removed."""
        self._execute = execute
        self._release = release
        self.removes = False
        self.removed_contents: list[str] = []

    def prepare_removal(self) -> None:
        """Must be called before rows are removed: frees the disk space that a removal needs at first."""
        self.removes = True
        self._release()

    def run(self, query: str, **values: object) -> int:
        """Returns the number of rows that ``query`` changed."""
        return int(self._execute(query, values).rowcount)

    def all(self, query: str, **values: object) -> list[Any]:
        return list(self._execute(query, values).fetchall())

    def one(self, query: str, **values: object) -> Any:
        """The first row, or None."""
        return self._execute(query, values).fetchone()

    def add_content(self, content: Content) -> str:
        """Add contents to the index. Returns their key, for the row that refers to them."""
        self.run("INSERT INTO contents VALUES (:key, :bytes)", **vars(content))
        return content.key

    def remove_contents(self, query: str, **values: object) -> int:
        """Remove the contents whose keys ``query`` selects, and their rows. Returns how many."""
        keys = [key for (key,) in self.all(query, **values)]
        if keys:
            self.prepare_removal()
        for key in keys:
            self.run("DELETE FROM contents WHERE key = :key", key=key)
        self.removed_contents += keys
        return len(keys)


class Index(Protocol):
    """Safe to share between threads."""

    def transaction(self) -> AbstractContextManager[Rows]:
        """All of the block's changes, or none. Others change nothing that the block has read.

        Raises `StorageFailed`.
        """

    def close(self) -> None: ...


class SQLiteIndex:
    """`index.sqlite` in WAL mode, and `reserved`: disk space for removals when the disk is full."""

    def __init__(self, folder: Path) -> None:
        """Raises ``OSError`` or ``sqlite3.Error``, the latter also for an index of another version."""
        self._lock = threading.Lock()
        index = folder / "index.sqlite"
        index.touch(mode=0o600)
        self._connection = sqlite3.connect(
            index, check_same_thread=False, isolation_level=None, timeout=5
        )
        try:
            _check_version(self._connection)
            for statement in (
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=NORMAL",
                "PRAGMA secure_delete=ON",
                "PRAGMA foreign_keys=ON",
                CONTENTS,
            ):
                self._connection.execute(statement)
        except BaseException:
            self._connection.close()
            raise
        self._reserved = folder / "reserved"
        self._reserve()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        rows = Rows(self._connection.execute, self._release_reserve)
        with self._lock:
            try:
                # IMMEDIATE: nobody else writes between this block's reads and its writes.
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield rows
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise StorageFailed(f"The proxy's index of files failed: {error}.") from error
        if rows.removes:
            self._reserve()

    def _reserve(self) -> None:
        """Occupy disk space for the next removal. If the disk is full now, a later call may succeed."""
        with suppress(OSError):
            self._reserved.touch(mode=0o600)
            self._reserved.write_bytes(bytes(_RESERVED_BYTES))

    def _release_reserve(self) -> None:
        with suppress(OSError):
            os.truncate(self._reserved, 0)


def _check_version(index: sqlite3.Connection) -> None:
    """Raises ``sqlite3.Error`` for an index of another version, which stays unchanged."""
    with closing(index.cursor()) as cursor:
        (version,) = cursor.execute("PRAGMA user_version").fetchone()
        (tables,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and version != VERSION:
            raise sqlite3.DatabaseError(f"the index is of version {version}, not {VERSION}")
        cursor.execute(f"PRAGMA user_version={VERSION}")
