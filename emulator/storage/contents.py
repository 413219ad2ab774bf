"""Where contents lie: files with random names in a folder. Knows nothing of the index.

`object_contents` has the same in an object store.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import structlog

from emulator.errors import StorageFailed

log = structlog.get_logger()

# Raises if contents may not be (or grow) that large. Called with each piece, so it stays cheap.
Check = Callable[[int], None]

PIECE_BYTES = 256 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Stored:
    bytes: int
    modified: float
    """Seconds since 1970."""


class Contents(Protocol):
    """Safe to share between threads."""

    def write(self, key: str, source: IO[bytes], check: Check) -> int:
        """How many bytes. What fails may leave a part. Raises what ``check`` raises, and `StorageFailed`."""

    def open(self, key: str) -> BinaryIO:
        """Raises `StorageFailed`."""

    def remove(self, *keys: str) -> None:
        """What is not there is no error, and what cannot be removed is told in the log."""

    def stored(self) -> Mapping[str, Stored]:
        """All that is there, by key. Raises `StorageFailed`."""

    def scratch(self) -> IO[bytes]:
        """A file without a name: gone when it is closed, or the process dies."""

    def close(self) -> None: ...


class FolderContents:
    """`contents/` in a folder: of this machine, or one that several replicas have mounted."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        """``shared``: what is written is on the disk before it counts. Raises ``OSError``."""
        self._shared = shared
        # What people upload is nobody else's business.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / "contents"
        self._path.mkdir(mode=0o700, exist_ok=True)
        self._fd = os.open(self._path, _READ | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self._fd)

    def lock_alone(self) -> bool:
        """Whether no other process has the folder open; none opens it alone until `close`."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            return False
        return True

    def lock_shared(self) -> None:
        """Let others in."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def write(self, key: str, source: IO[bytes], check: Check) -> int:
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
            return os.fdopen(os.open(key, _READ, dir_fd=self._fd), "rb")
        except OSError as error:
            raise StorageFailed(f"The proxy cannot read the file: {error.strerror}.") from error

    def scratch(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._path)

    def remove(self, *keys: str) -> None:
        for key in keys:
            try:
                os.unlink(key, dir_fd=self._fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("contents not removed", reason=str(error))

    def stored(self) -> dict[str, Stored]:
        found = {}
        for entry in os.scandir(self._fd):
            with suppress(FileNotFoundError):
                said = entry.stat(follow_symlinks=False)
                found[entry.name] = Stored(said.st_size, said.st_mtime)
        return found
