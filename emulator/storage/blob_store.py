"""Contents, and an index of them. Knows nothing of clients, files or containers.

    written (no row yet) ──► row in the index: the contents exist ──► row removed ──► contents removed
          └─ a crash here leaves contents without a row: removed as leftovers

One machine has both in a folder: `index.sqlite` and `contents/`. When the folder is opened, contents
without a row are removed, and so are rows whose contents did not reach the disk. Therefore nothing is
fsynced: a machine that loses power loses the last moments, never half a file. Several proxies may share a
folder. Each holds a shared lock on it; only one that has it alone removes leftovers.

Several replicas have the index in a database, and contents in a folder that all have mounted or in an
object store. There, contents are on the disk before they get a row, and count as leftovers after an hour
without one.
"""

from __future__ import annotations

import math
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import structlog

from emulator.errors import StorageFailed
from emulator.storage.contents import Contents, FolderContents, SizeCheck
from emulator.storage.index import Content, Index, Rows, SQLiteIndex

log = structlog.get_logger()

TEMPORARY = ":temporary:"
_LEFTOVER_SECONDS = 3600.0


class BlobStore:
    """Safe to share between threads."""

    def __init__(self, index: Index, contents: Contents, now: Callable[[], float]) -> None:
        self.owned = ExitStack()
        """Closed with this store."""
        self.folder: Path | None = None
        """Where one machine has both. None if several replicas share them."""
        self._index = index
        self._contents = contents
        self._now = now
        self._last_stamp = 0
        self._stamp_lock = threading.Lock()

    def close(self) -> None:
        self.owned.close()

    def now(self) -> int:
        """Unix time."""
        return int(self._now())

    def new_id(self, prefix: str) -> str:
        """A unique id that cannot be guessed. Ids of one prefix sort by age."""
        with self._stamp_lock:
            self._last_stamp = max(self._last_stamp + 1, int(self._now() * 1e9))
            return f"{prefix}{self._last_stamp:016x}{secrets.token_hex(8)}"

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        """All of the block's changes to the index, or none. Raises `StorageFailed`."""
        with self._index.transaction() as rows:
            yield rows
        self._contents.remove(*rows.removed_contents)

    @contextmanager
    def writing(self, source: IO[bytes], check: SizeCheck) -> Iterator[Content]:
        """Write contents. The block must add them to the index; if it fails, they are removed.

        Raises what ``check`` raises, and `StorageFailed`.
        """
        key = secrets.token_hex(16)
        try:
            yield Content(key, self._contents.write(key, source, check))
        except BaseException:
            self._contents.remove(key)
            raise

    def open(self, key: str) -> BinaryIO:
        """The contents of ``key``, within the transaction that read it. Raises `StorageFailed`."""
        return self._contents.open(key)

    def scratch(self) -> IO[bytes]:
        """A nameless file, which disappears when it is closed or the process dies."""
        return self._contents.scratch()

    def remove_leftovers(self, *, alone: bool) -> None:
        """Remove contents without a row; ``alone``, also rows whose contents are missing or cut off.

        Unless ``alone``, other replicas may be writing: contents count only after an hour without a row.
        """
        until = math.inf if alone else self._now() - _LEFTOVER_SECONDS
        stored = self._contents.list_stored()
        with self.transaction() as rows:
            known = dict(rows.all("SELECT key, bytes FROM contents"))
            for key in list(known) if alone else ():
                if key not in stored or stored[key].bytes != known[key]:
                    rows.remove_contents("SELECT :key", key=key)
        leftovers = [key for key in stored.keys() - known if stored[key].modified < until]
        self._contents.remove(*leftovers)


def open_folder(
    path: Path, *, now: Callable[[], float] = time.time, cleanup: Callable[[], None] | None = None
) -> BlobStore:
    """The folder of one machine. Raises ``OSError`` or ``sqlite3.Error`` if it cannot be used."""
    with ExitStack() as opened:
        if cleanup is not None:
            opened.callback(cleanup)
        contents = FolderContents(path)
        opened.callback(contents.close)
        index = SQLiteIndex(path)
        opened.callback(index.close)
        store = BlobStore(index, contents, now)
        store.folder = path
        if contents.lock_alone():
            store.remove_leftovers(alone=True)
            contents.lock_shared()
        store.owned.push(opened.pop_all())
    return store


def open_blob_store(
    path: str, index: str = "", *, now: Callable[[], float] = time.time
) -> BlobStore:
    """The folder at ``path``; for `TEMPORARY`, or if it cannot be used, one that is removed at close.

    Uploads then do not survive a restart, which is better than no proxy at all. With an ``index`` of
    several replicas this raises `StorageFailed` instead: otherwise each replica would have files of its
    own.
    """
    if index:
        return _open_shared(path, index, now)
    if path != TEMPORARY:
        try:
            return open_folder(Path(path).expanduser(), now=now)
        except (OSError, sqlite3.Error) as error:
            log.warning("files are kept for this run only", reason=str(error))
    temporary = tempfile.TemporaryDirectory(prefix="emulator-files-")
    return open_folder(Path(temporary.name), now=now, cleanup=temporary.cleanup)


def _open_shared(path: str, index_url: str, now: Callable[[], float]) -> BlobStore:
    """Raises `StorageFailed`."""
    from emulator.storage.object_contents import ObjectContents
    from emulator.storage.shared_index import SharedIndex

    contents: Contents
    try:
        if "://" in path:
            contents = ObjectContents(path)
        else:
            contents = FolderContents(Path(path).expanduser(), shared=True)
    except OSError as error:
        raise StorageFailed(f"files_dir cannot be used: {error}.") from error
    with ExitStack() as opened:
        opened.callback(contents.close)
        index = SharedIndex(index_url)
        opened.callback(index.close)
        store = BlobStore(index, contents, now)
        store.remove_leftovers(alone=False)
        store.owned.push(opened.pop_all())
    return store
