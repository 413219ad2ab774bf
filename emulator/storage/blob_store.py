"""Contents, and their rows in the database. Knows nothing of clients, files or containers.

    written (no row yet) ──► row: the contents exist ──► row removed ──► contents removed
          └─ a crash here leaves contents without a row: removed as leftovers

With SQLite, contents without a row are removed when a process that has the folder alone opens it, and so are
rows whose contents did not reach the disk. Therefore nothing is fsynced: a machine that loses power loses the
last moments, never half a file. With PostgreSQL, contents are on the disk before they get a row, and count as
leftovers after an hour without one.

Contents are opened outside of transactions: a slow disk or object store delays nobody else.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import structlog

from emulator.core.errors import FileStoreUnavailable, StorageFailed
from emulator.database import Database, DatabaseFailed, Rows
from emulator.database.database import Queries
from emulator.database.opening import fact
from emulator.database.postgres import Postgres
from emulator.storage import version_1
from emulator.storage.contents import Contents, FolderContents, SizeCheck

log = structlog.get_logger()

TABLE = "CREATE TABLE IF NOT EXISTS contents (key TEXT PRIMARY KEY, bytes BIGINT NOT NULL)"
CONTENT_COLUMN = "content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE"
"""The column by which other tables refer to contents: removing contents removes the row."""
_LEFTOVER_SECONDS = 3600.0


@dataclass(frozen=True)
class Content:
    """Contents on the disk, possibly without a row yet."""

    key: str
    bytes: int


class ContentRows:
    """The rows of one transaction; contents whose rows it removes are removed after it."""

    def __init__(self, rows: Rows) -> None:
        self.run, self.all, self.one = rows.run, rows.all, rows.one
        self.prepare_removal = rows.prepare_removal
        self.removed: list[str] = []

    def add_content(self, content: Content) -> str:
        """Returns the key, for the row that refers to the contents."""
        self.run("INSERT INTO contents VALUES (:key, :bytes)", **vars(content))
        return content.key

    def remove_contents(self, query: str, **values: object) -> int:
        """Remove the contents whose keys ``query`` selects, and their rows. Returns how many."""
        keys = [key for (key,) in self.all(query, **values)]
        if keys:
            self.prepare_removal()
        for key in keys:
            self.run("DELETE FROM contents WHERE key = :key", key=key)
        self.removed += keys
        return len(keys)


class BlobStore:
    """Safe to share between threads. Every method raises `StorageFailed`."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self.owned = ExitStack()
        """Closed with this store."""
        self._database = database
        self._contents = contents
        self._last_stamp = 0
        self._stamp_lock = threading.Lock()
        self.make_tables(TABLE)

    def close(self) -> None:
        self.owned.close()

    def now(self) -> int:
        """Unix time."""
        return int(self._database.now())

    def new_id(self, prefix: str) -> str:
        """A unique id that cannot be guessed. Ids of one prefix sort by age."""
        with self._stamp_lock:
            self._last_stamp = max(self._last_stamp + 1, int(self._database.now() * 1e9))
            return f"{prefix}{self._last_stamp:016x}{secrets.token_hex(8)}"

    def make_tables(self, *statements: str) -> None:
        with storage_failures():
            self._database.make_tables(*statements)

    @contextmanager
    def rows(self) -> Iterator[Queries]:
        """Statements by themselves."""
        with storage_failures():
            yield self._database

    @contextmanager
    def transaction(self, lock: str = "files") -> Iterator[ContentRows]:
        """All of the block's changes, or none. What it reads, such as a quota, does not change meanwhile."""
        with storage_failures(), self._database.transaction(lock) as rows:
            changed = ContentRows(rows)
            yield changed
        self._contents.remove(*changed.removed)

    @contextmanager
    def writing(self, source: IO[bytes], check: SizeCheck) -> Iterator[Content]:
        """Write contents. The block must add their row; if it fails, they are removed.

        Raises what ``check`` raises.
        """
        key = secrets.token_hex(16)
        try:
            yield Content(key, self._contents.write(key, source, check))
        except BaseException:
            self._contents.remove(key)
            raise

    def open(self, find: Callable[[Queries], str]) -> BinaryIO:
        """The contents whose key ``find`` returns."""
        key = self._found(find)
        while True:
            try:
                return self._contents.open(key)
            except StorageFailed:
                if (newer := self._found(find)) == key:
                    raise
                key = newer  # they were replaced meanwhile

    def scratch(self) -> IO[bytes]:
        """A nameless file, which disappears when it is closed or the process dies."""
        return self._contents.scratch()

    def remove_leftovers(self) -> None:
        """Remove contents without a row, and rows whose contents are missing or cut off, if this process has
        the folder alone. Replicas on other machines may be writing: there, only contents count, after an hour
        without a row.
        """
        if isinstance(self._database, Postgres) or not isinstance(self._contents, FolderContents):
            self._remove_leftovers(alone=False)
        elif self._contents.lock_alone():
            self._remove_leftovers(alone=True)
            self._contents.lock_shared()

    def _remove_leftovers(self, *, alone: bool) -> None:
        until = math.inf if alone else self._database.now() - _LEFTOVER_SECONDS
        stored = self._contents.list_stored()
        with self.transaction() as rows:
            known = dict(rows.all("SELECT key, bytes FROM contents"))
            for key in list(known) if alone else ():
                if key not in stored or stored[key].bytes != known[key]:
                    rows.remove_contents("SELECT :key", key=key)
        leftovers = [key for key in stored.keys() - known if stored[key].modified < until]
        self._contents.remove(*leftovers)

    def _found(self, find: Callable[[Queries], str]) -> str:
        with self.rows() as rows:
            return find(rows)


def open_blob_store(database: Database, place: str, name: str = "") -> BlobStore:
    """``place``: a folder, or ``s3://bucket/prefix``; ``name``: of the database's contents, if it is known.

    Raises `StorageFailed`.
    """
    with ExitStack() as opened:
        contents = _open_contents(database, place, name or contents_name(database, place))
        opened.callback(contents.close)
        store = BlobStore(database, contents)
        store.owned.push(opened.pop_all())
    return store


def contents_name(database: Database, place: str) -> str:
    """The name of the database's contents: another database's must not look like leftovers.

    Raises `StorageFailed`.
    """
    with storage_failures():
        return fact(database, "contents", _new_name(database, place))


def _open_contents(database: Database, place: str, name: str) -> Contents:
    if "://" in place:
        from emulator.storage.object_contents import ObjectContents

        return ObjectContents(f"{place.rstrip('/')}/{name}")
    try:
        folder = Path(place).expanduser() / name
        return FolderContents(folder, shared=isinstance(database, Postgres))
    except OSError as error:
        raise StorageFailed(f"files_dir cannot be used: {error}.") from error


def _new_name(database: Database, place: str) -> str:
    """The name of a new database's contents: those of version 1 stay where they are."""
    if isinstance(database, Postgres):
        has_old = database.one("SELECT to_regclass('emulator_index')") != (None,)
    else:
        has_old = "://" not in place and version_1.has_files(Path(place).expanduser())
    return version_1.CONTENTS if has_old else f"contents-{secrets.token_hex(4)}"


@contextmanager
def storage_failures() -> Iterator[None]:
    """Raises `StorageFailed` if the block cannot use the database."""
    try:
        yield
    except DatabaseFailed as error:
        message = f"The proxy's database failed: {error}."
        raise (FileStoreUnavailable if error.passes else StorageFailed)(message) from error
