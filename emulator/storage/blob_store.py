"""Bytes kept in a folder of the host, and an index of them. Knows nothing of clients, files or containers.

The folder holds `index.sqlite` (WAL), `contents/`, whose files have random names, and `reserved`, room for
removing things when the disk is full. Contents exist from the
moment when their row is in the index: what a crash left without one is removed when the folder is
opened next, and so is a row whose contents did not reach the disk. Hence nothing is fsynced: a
machine that loses power loses the last moments, never half a file.

Proxies may share a folder. Each holds a shared lock on it; only one that has it alone removes leftovers.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import structlog

from emulator.errors import NotStored

log = structlog.get_logger()

# Raises if contents may not be (or grow) that large. Called with each piece, so it stays cheap.
Check = Callable[[int], None]

TEMPORARY = ":temporary:"

_PIECE_BYTES = 256 * 1024
_RESERVED_BYTES = 512 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTENTS = "CREATE TABLE IF NOT EXISTS contents (key TEXT PRIMARY KEY, bytes INTEGER NOT NULL)"

# How other tables point to contents: a row goes with them.
CONTENT_COLUMN = "content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE"


@dataclass(frozen=True)
class Content:
    """Contents on the disk that the index may not know yet."""

    key: str
    bytes: int


class Rows:
    """The index, as one transaction sees it."""

    def __init__(self, connection: sqlite3.Connection, release: Callable[[], None]) -> None:
        self._connection = connection
        self._release = release
        self.removes = False
        self.dropped: list[str] = []

    def removing(self) -> None:
        """To be called before rows are removed: what this takes at first is there on a full disk, too."""
        self.removes = True
        self._release()

    def run(self, query: str, **values: object) -> int:
        """How many rows ``query`` changed."""
        return self._connection.execute(query, values).rowcount

    def all(self, query: str, **values: object) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    def one(self, query: str, **values: object) -> Any:
        """The first row, or None."""
        return self._connection.execute(query, values).fetchone()

    def keep(self, content: Content) -> str:
        """Take contents into the index. Their key, for the row that is to point to them."""
        self.run("INSERT INTO contents VALUES (:key, :bytes)", **vars(content))
        return content.key

    def drop(self, query: str, **values: object) -> int:
        """Remove the contents whose keys ``query`` selects, and every row that points to them. How many."""
        keys = [key for (key,) in self.all(query, **values)]
        if keys:
            self.removing()
        self._connection.executemany("DELETE FROM contents WHERE key = ?", [(key,) for key in keys])
        self.dropped += keys
        return len(keys)


_VERSION = 1
"""Of the index's tables: to be raised when they change."""


class BlobStore:
    """Safe to share between threads. Whoever opened it closes it."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        """Raises ``OSError`` or ``sqlite3.Error`` if the folder cannot be used."""
        self._now = now
        self._lock = threading.Lock()
        self._last_stamp = 0
        self._stamp_lock = threading.Lock()
        with ExitStack() as opened:
            # What people upload is nobody else's business.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._contents = path / "contents"
            self._contents.mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(self._contents, _READ | os.O_DIRECTORY)
            opened.callback(os.close, self._fd)
            index = path / "index.sqlite"
            index.touch(mode=0o600)
            self._connection = sqlite3.connect(
                index, check_same_thread=False, isolation_level=None, timeout=5
            )
            opened.callback(self._connection.close)
            _check_version(self._connection)
            for statement in (
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=NORMAL",
                "PRAGMA secure_delete=ON",
                "PRAGMA foreign_keys=ON",
                _CONTENTS,
            ):
                self._connection.execute(statement)
            self._reserved = path / "reserved"
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                self._remove_leftovers()
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            self._reserve()
            self._opened = opened.pop_all()

    def close(self) -> None:
        with self._lock:
            self._opened.close()

    def on_close(self, task: Callable[[], None]) -> None:
        """Call ``task`` when all else has been closed."""
        with ExitStack() as opened:
            opened.callback(task)
            opened.push(self._opened.pop_all())
            self._opened = opened.pop_all()

    def now(self) -> int:
        """Seconds since 1970."""
        return int(self._now())

    def new_id(self, prefix: str) -> str:
        """Unguessable and unique; the ids of one prefix sort in the order in which they were made."""
        with self._stamp_lock:
            self._last_stamp = max(self._last_stamp + 1, int(self._now() * 1e9))
            return f"{prefix}{self._last_stamp:016x}{secrets.token_hex(8)}"

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        """All of the block's changes to the index, or none. Raises `NotStored`."""
        rows = Rows(self._connection, self._release_reserve)
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
                raise NotStored(f"The proxy's index of files failed: {error}.") from error
        self._unlink(*rows.dropped)
        if rows.removes:
            self._reserve()

    @contextmanager
    def written(self, source: IO[bytes], check: Check) -> Iterator[Content]:
        """Write contents, for the block to keep; they vanish if it fails.

        Raises what ``check`` raises, and `NotStored`.
        """
        key = secrets.token_hex(16)
        try:
            yield Content(key, self._write(key, source, check))
        except BaseException:
            self._unlink(key)
            raise

    def open(self, key: str) -> BinaryIO:
        """The contents of that key; in the transaction that read it, they are there. Raises `NotStored`."""
        try:
            return os.fdopen(os.open(key, _READ, dir_fd=self._fd), "rb")
        except OSError as error:
            raise NotStored(f"The proxy cannot read the file: {error.strerror}.") from error

    def scratch(self) -> IO[bytes]:
        """A file without a name on the folder's disk: gone when it is closed, or the process dies."""
        return tempfile.TemporaryFile(dir=self._contents)

    def _write(self, key: str, source: IO[bytes], check: Check) -> int:
        size = 0
        try:
            with os.fdopen(os.open(key, _WRITE, 0o600, dir_fd=self._fd), "wb") as target:
                while piece := source.read(_PIECE_BYTES):
                    size += len(piece)
                    check(size)
                    target.write(piece)
        except OSError as error:
            raise NotStored(f"The proxy cannot store the file: {error.strerror}.") from error
        return size

    def _reserve(self) -> None:
        """Take room on the disk for the next removal; where there is none, the one after may have some."""
        with suppress(OSError):
            self._reserved.touch(mode=0o600)
            self._reserved.write_bytes(bytes(_RESERVED_BYTES))

    def _release_reserve(self) -> None:
        with suppress(OSError):
            os.truncate(self._reserved, 0)

    def _unlink(self, *keys: str) -> None:
        for key in keys:
            try:
                os.unlink(key, dir_fd=self._fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("contents not removed", reason=str(error))

    def _remove_leftovers(self) -> None:
        on_disk = {
            entry.name: entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self._fd)
        }
        with self.transaction() as rows:
            known = dict(rows.all("SELECT key, bytes FROM contents"))
            for key in [key for key in known if on_disk.get(key) != known[key]]:
                rows.drop("SELECT :key", key=key)
                on_disk[key] = 0
                del known[key]
        self._unlink(*(on_disk.keys() - known.keys()))


def _check_version(index: sqlite3.Connection) -> None:
    """An index of another version is left as it is. Raises ``sqlite3.Error``."""
    (version,) = index.execute("PRAGMA user_version").fetchone()
    (tables,) = index.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and version != _VERSION:
        raise sqlite3.DatabaseError(f"the index is of version {version}, not {_VERSION}")
    index.execute(f"PRAGMA user_version={_VERSION}")


def open_blob_store(path: str, *, now: Callable[[], float] = time.time) -> BlobStore:
    """The folder at ``path``. For `TEMPORARY`, or where it cannot be used, one that goes when it is closed.

    What is uploaded then does not survive a restart, which is better than no proxy at all.
    """
    if path != TEMPORARY:
        try:
            return BlobStore(Path(path).expanduser(), now=now)
        except (OSError, sqlite3.Error) as error:
            log.warning("files are kept for this run only", reason=str(error))
    passing = tempfile.TemporaryDirectory(prefix="emulator-files-")
    folder = BlobStore(Path(passing.name), now=now)
    folder.on_close(passing.cleanup)
    return folder
