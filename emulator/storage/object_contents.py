"""Contents as objects in an object store (``s3://bucket/prefix`` or any other that fsspec supports).

An object is uploaded whole from a file on the local disk, so half of one never exists. The store's own
library finds the credentials (environment, instance role). Knows nothing of rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, BinaryIO, cast

import structlog

from emulator.core.errors import FileStoreUnavailable, StorageFailed
from emulator.storage.contents import PIECE_BYTES, SizeCheck, StoredContent

log = structlog.get_logger()


@contextmanager
def _package_of(url: str) -> Iterator[None]:
    """Raises `StorageFailed` if the package for such URLs is missing."""
    try:
        yield
    except ImportError as error:
        message = f"files_dir {url.partition('://')[0]}:// needs a package: {error}"
        raise StorageFailed(
            f"{message} (s3: pip install 'tool-use-api-emulator[shared]')"
        ) from error


class ObjectContents:
    """Safe to share between threads, not between processes: each opens its own."""

    def __init__(self, url: str) -> None:
        """Raises `StorageFailed`, also if fsspec or its package for such a URL is missing."""
        try:
            import fsspec
        except ImportError as error:
            raise StorageFailed(
                f"files_dir {url.partition('://')[0]}:// needs fsspec: pip install fsspec, and its "
                "package for this store"
            ) from error
        with _storage_errors("cannot be opened"), _package_of(url):
            # A cached instance would also list objects that other replicas have removed.
            self._files: Any
            self._files, root = fsspec.core.url_to_fs(
                url, skip_instance_cache=True, use_listings_cache=False
            )
            self._root = root.rstrip("/")

    def close(self) -> None:
        """Nothing is open between calls."""

    def write(self, key: str, source: IO[bytes], check: SizeCheck) -> int:
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
            with _storage_errors("takes no file"):
                self._files.put_file(whole.name, self._path(key))
        return size

    def open(self, key: str) -> BinaryIO:
        """The object is downloaded while it is read. If it is removed meanwhile, reading fails."""
        with _storage_errors("cannot be read"):
            return cast(BinaryIO, self._files.open(self._path(key), "rb"))

    def scratch(self) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def remove(self, *keys: str) -> None:
        for key in keys:
            try:
                with _storage_errors("cannot remove"):
                    self._files.rm_file(self._path(key))
            except StorageFailed as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    log.warning("contents were not removed", reason=error.message)

    def list_stored(self) -> dict[str, StoredContent]:
        try:
            with _storage_errors("cannot be listed"):
                entries = self._files.ls(self._root, detail=True)
        except StorageFailed as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}  # nothing has been stored yet
            raise
        found = {}
        for entry in entries:
            when = entry.get("LastModified") or entry.get("created") or entry.get("mtime")
            seconds = when.timestamp() if isinstance(when, datetime) else when
            if entry["type"] == "file" and isinstance(seconds, int | float):
                found[entry["name"].rpartition("/")[2]] = StoredContent(int(entry["size"]), seconds)
        return found

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


@contextmanager
def _storage_errors(how: str) -> Iterator[None]:
    """Raises `StorageFailed` for what is forbidden or missing, `FileStoreUnavailable` for any other error.

    Each library behind fsspec has its own errors for an unavailable store. Object stores are never full.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        raise StorageFailed(f"The proxy's object store {how}: {type(error).__name__}.") from error
    except Exception as error:
        raise FileStoreUnavailable(
            f"The proxy's object store {how}: {type(error).__name__}."
        ) from error
