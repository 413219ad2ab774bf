"""The index of what is kept: rows of SQL, changed in transactions. Knows nothing of what they mean.

`SQLiteIndex` is a file in the folder of one machine; `shared_index` has the same for several replicas. Both
run the same queries, in the SQL that SQLite and PostgreSQL share, with ``:name`` for each value.
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

# How other tables point to contents: a row goes with them.
CONTENT_COLUMN = "content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE"

VERSION = 1
"""Of the index's tables: to be raised when they change."""

_RESERVED_BYTES = 512 * 1024


@dataclass(frozen=True)
class Content:
    """Contents on the disk that the index may not know yet."""

    key: str
    bytes: int


class Rows:
    """The index, as one transaction sees it."""

    def __init__(
        self, execute: Callable[[str, dict[str, Any]], Any], release: Callable[[], None]
    ) -> None:
        """``execute`` returns a cursor as PEP 249 has it; ``release`` is called before rows are removed."""
        self._execute = execute
        self._release = release
        self.removes = False
        self.dropped: list[str] = []

    def removing(self) -> None:
        """To be called before rows are removed: what this takes at first is there on a full disk, too."""
        self.removes = True
        self._release()

    def run(self, query: str, **values: object) -> int:
        """How many rows ``query`` changed."""
        return int(self._execute(query, values).rowcount)

    def all(self, query: str, **values: object) -> list[Any]:
        return list(self._execute(query, values).fetchall())

    def one(self, query: str, **values: object) -> Any:
        """The first row, or None."""
        return self._execute(query, values).fetchone()

    def keep(self, content: Content) -> str:
        """Take contents into the index. Their key, for the row that is to point to them."""
        self.run("INSERT INTO contents VALUES (:key, :bytes)", **vars(content))
        return content.key

    def drop(self, query: str, **values: object) -> int:
        """Remove the contents whose keys ``query`` selects, and every row that points to them. How many."""
        keys = [key for (key,) in self.all(query, **values)]
        if keys:
            self.removing()
        for key in keys:
            self.run("DELETE FROM contents WHERE key = :key", key=key)
        self.dropped += keys
        return len(keys)


class Index(Protocol):
    """Safe to share between threads."""

    def transaction(self) -> AbstractContextManager[Rows]:
        """All of the block's changes, or none; what it reads stays true until it has written.

        Raises `StorageFailed`.
        """

    def close(self) -> None: ...


class SQLiteIndex:
    """`index.sqlite` in WAL mode, and `reserved`, room for removing things when the disk is full."""

    def __init__(self, folder: Path) -> None:
        """Raises ``OSError`` or ``sqlite3.Error``, also for an index of another version."""
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
                # At once for writing: what the block reads stays true until it has written.
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
        """Take room on the disk for the next removal; where there is none, the one after may have some."""
        with suppress(OSError):
            self._reserved.touch(mode=0o600)
            self._reserved.write_bytes(bytes(_RESERVED_BYTES))

    def _release_reserve(self) -> None:
        with suppress(OSError):
            os.truncate(self._reserved, 0)


def _check_version(index: sqlite3.Connection) -> None:
    """An index of another version is left as it is. Raises ``sqlite3.Error``."""
    with closing(index.cursor()) as cursor:
        (version,) = cursor.execute("PRAGMA user_version").fetchone()
        (tables,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and version != VERSION:
            raise sqlite3.DatabaseError(f"the index is of version {version}, not {VERSION}")
        cursor.execute(f"PRAGMA user_version={VERSION}")
