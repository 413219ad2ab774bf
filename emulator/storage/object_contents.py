"""Contents in an object store (``s3://bucket/prefix``, whatever fsspec knows): an object for each.

An object is put whole from a file on the local disk, so there is never half of one. Credentials are
those that the store's own library finds (environment, instance role). Knows nothing of the index.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, BinaryIO, cast

import structlog

from emulator.errors import FileStoreUnavailable, StorageFailed
from emulator.storage.contents import PIECE_BYTES, Check, Stored

log = structlog.get_logger()


class ObjectContents:
    """Safe to share between threads, not between processes: each opens its own."""

    def __init__(self, url: str) -> None:
        """Raises `StorageFailed`, also without fsspec or what it needs for such a URL."""
        try:
            import fsspec
        except ImportError as error:
            raise StorageFailed(
                f"files_dir {_scheme(url)} needs fsspec: pip install fsspec, and what it needs for it"
            ) from error
        with _failing("cannot be opened"):
            # Not from the cache of instances, which would also list what others have removed since.
            self._files: Any
            self._files, root = fsspec.core.url_to_fs(
                url, skip_instance_cache=True, use_listings_cache=False
            )
            self._root = f"{root.rstrip('/')}/contents"

    def close(self) -> None:
        """Nothing is held open."""

    def write(self, key: str, source: IO[bytes], check: Check) -> int:
        size = 0
        with tempfile.NamedTemporaryFile() as whole:
            try:
                while piece := source.read(PIECE_BYTES):
                    size += len(piece)
                    check(size)
                    whole.write(piece)
                whole.flush()
            except OSError as error:
                raise StorageFailed(
                    f"The proxy cannot store the file: {error.strerror}."
                ) from error
            with _failing("takes no file"):
                self._files.put_file(whole.name, self._place(key))
        return size

    def open(self, key: str) -> BinaryIO:
        """It is read as it is asked for: one that is removed meanwhile breaks off."""
        with _failing("cannot be read"):
            return cast(BinaryIO, self._files.open(self._place(key), "rb"))

    def scratch(self) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def remove(self, *keys: str) -> None:
        for key in keys:
            try:
                with _failing("cannot remove"):
                    self._files.rm_file(self._place(key))
            except StorageFailed as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    log.warning("contents not removed", reason=error.message)

    def stored(self) -> dict[str, Stored]:
        try:
            with _failing("cannot be listed"):
                entries = self._files.ls(self._root, detail=True)
        except StorageFailed as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}  # there has been none yet
            raise
        found = {}
        for entry in entries:
            when = entry.get("LastModified") or entry.get("created") or entry.get("mtime")
            seconds = when.timestamp() if isinstance(when, datetime) else when
            if entry["type"] == "file" and isinstance(seconds, int | float):
                found[entry["name"].rpartition("/")[2]] = Stored(int(entry["size"]), seconds)
        return found

    def _place(self, key: str) -> str:
        return f"{self._root}/{key}"


@contextmanager
def _failing(how: str) -> Iterator[None]:
    """Raises `StorageFailed` for what is forbidden or missing, `FileStoreUnavailable` for any other failure.

    Each library behind fsspec has errors of its own for a store that cannot be reached; none of them is full.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        raise StorageFailed(f"The proxy's object store {how}: {type(error).__name__}.") from error
    except Exception as error:
        raise FileStoreUnavailable(
            f"The proxy's object store {how}: {type(error).__name__}."
        ) from error


def _scheme(url: str) -> str:
    return f"{url.partition('://')[0]}://"
