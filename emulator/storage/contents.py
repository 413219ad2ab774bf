"""Contents as files with random names in a folder. Knows nothing of rows.

`object_contents` stores them in an object store instead.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import structlog

from emulator.core.errors import StorageFailed

log = structlog.get_logger()

SizeCheck = Callable[[int], None]
"""Raises if contents must not be that large. Called with the size so far after each piece, so it must be
cheap.
"""

PIECE_BYTES = 256 * 1024
# NONBLOCK: opening a named pipe would wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class StoredContent:
    bytes: int
    modified: float
    """Unix time."""


class Contents(Protocol):
    """Safe to share between threads."""

    def write(self, key: str, source: IO[bytes], check: SizeCheck) -> int:
        """Returns the number of bytes. Raises what ``check`` raises, and `StorageFailed`."""

    def open(self, key: str) -> BinaryIO:
        """Raises `StorageFailed`."""

    def remove(self, *keys: str) -> None:
        """Ignores keys that do not exist. A failure to remove is only logged."""

    def list_stored(self) -> Mapping[str, StoredContent]:
        """All contents by key. Raises `StorageFailed`."""

    def scratch(self) -> IO[bytes]:
        """A nameless file, which disappears when it is closed or the process dies."""

    def close(self) -> None: ...


class FolderContents:
    """A folder of this machine, or one that several replicas have mounted."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        """``shared``: several replicas have the folder, so writes are fsynced. Raises ``OSError``."""
        self._shared = shared
        # Other users of the machine must not read uploads.
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder
        self._fd = os.open(self._path, _READ | os.O_DIRECTORY)
        if not shared:
            self.lock_shared()

    def close(self) -> None:
        os.close(self._fd)

    def lock_alone(self) -> bool:
        """Returns True if no other process has the folder open; until `close`, none gets True."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            return False
        return True

    def lock_shared(self) -> None:
        """Let other processes open the folder, too."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def write(self, key: str, source: IO[bytes], check: SizeCheck) -> int:
        size = 0
        try:
            with os.fdopen(os.open(key, _WRITE, 0o600, dir_fd=self._fd), "wb") as target:
                while piece := source.read(PIECE_BYTES):
                    size += len(piece)
                    check(size)
                    target.write(piece)
                if self._shared:
                    target.flush()
                    os.fsync(target.fileno())
        except OSError as error:
            raise StorageFailed(f"The proxy cannot store the file: {error.strerror}.") from error
        return size

    def open(self, key: str) -> BinaryIO:
        try:
            file = os.fdopen(os.open(key, _READ, dir_fd=self._fd), "rb")
        except OSError as error:
            raise StorageFailed(f"The proxy cannot read the file: {error.strerror}.") from error
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise StorageFailed("The proxy cannot read the file: it is not a regular file.")
        return file

    def scratch(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._path)

    def remove(self, *keys: str) -> None:
        for key in keys:
            try:
                os.unlink(key, dir_fd=self._fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("contents were not removed", reason=str(error))

    def list_stored(self) -> dict[str, StoredContent]:
        found = {}
        for entry in os.scandir(self._fd):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                found[entry.name] = StoredContent(status.st_size, status.st_mtime)
        return found
