"""The files of a container: their rows, and their paths. Does not know who owns the container.

A path names a regular file below `ROOT`. Together the paths can exist in a sandbox: none is a folder of
another.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.core.errors import BadRequest, NotFound, TooLarge
from emulator.database.database import Queries
from emulator.storage.blob_store import CONTENT_COLUMN, BlobStore, Content, ContentRows
from emulator.storage.files import check_name

ROOT = "/mnt/data/"
MAX_SEGMENTS = 8
MAX_FILES = 1000

Source = Literal["user", "assistant"]

TABLE = f"""
CREATE TABLE IF NOT EXISTS container_files (
    id TEXT PRIMARY KEY, container_id TEXT NOT NULL REFERENCES containers, path TEXT NOT NULL,
    created_at BIGINT NOT NULL, source TEXT NOT NULL, {CONTENT_COLUMN}, UNIQUE (container_id, path))
"""
_SELECT = """
SELECT id, container_id, path, bytes, created_at, source, content
FROM container_files JOIN contents ON content = key WHERE container_id = :container_id"""


@dataclass(frozen=True)
class ContainerFile:
    id: str
    container_id: str
    path: str
    bytes: int
    created_at: int
    source: Source

    @property
    def filename(self) -> str:
        return posixpath.basename(self.path)

    def json(self) -> dict[str, Any]:
        """The file as OpenAI's JSON object."""
        return {**vars(self), "object": "container.file"}


def check_path(path: str) -> None:
    """Raises `BadRequest` unless ``path`` is `ROOT` and then names of at most `MAX_SEGMENTS` levels."""
    segments = path.removeprefix(ROOT).split("/")
    if not path.startswith(ROOT) or len(segments) > MAX_SEGMENTS:
        raise BadRequest(
            f"Invalid path {path[:300]!r}: expected {ROOT} and at most {MAX_SEGMENTS} names.",
            "file",
            "invalid_file_name",
        )
    for segment in segments:
        check_name(segment)


@dataclass(frozen=True)
class ByteQuota:
    """The bytes that a container's files may have together, and those in use."""

    limit: int
    used: int = 0

    def check(self, size: int) -> None:
        """Raises `TooLarge` if ``size`` more bytes exceed the limit."""
        if self.used + size > self.limit:
            raise TooLarge(
                f"The files of a container may have {self.limit} bytes together, and "
                f"{max(self.limit - self.used, 0)} are left: remove some first.",
                "file",
                "container_full",
            )


def quota_for(rows: Queries, container_id: str, path: str, limit: int) -> ByteQuota:
    """The quota for a file at ``path``: a file that it replaces does not count as used."""
    used = rows.one(
        "SELECT coalesce(sum(bytes), 0) FROM container_files JOIN contents ON content = key "
        "WHERE container_id = :container_id AND path != :path",
        container_id=container_id,
        path=path,
    )
    return ByteQuota(limit, int(used[0]))


def put(
    rows: ContentRows,
    folder: BlobStore,
    container_id: str,
    path: str,
    stored: Content,
    source: Source,
) -> ContainerFile:
    """Make ``stored`` the file at ``path``. A file that it replaces keeps its id and age.

    Raises `BadRequest`. The caller has checked the path and the quota.
    """
    _check_path_is_free(rows, container_id, path)
    old = rows.one(f"{_SELECT} AND path = :path", container_id=container_id, path=path)
    if old is None:
        file_id, created_at = folder.new_id("cfile_"), folder.now()
    else:
        file_id, _, _, _, created_at, _, key = old
        rows.remove_contents("SELECT :key", key=key)
    file = ContainerFile(file_id, container_id, path, stored.bytes, created_at, source)
    rows.run(
        "INSERT INTO container_files VALUES "
        "(:id, :container_id, :path, :created_at, :source, :content)",
        **vars(file),
        content=rows.add_content(stored),
    )
    return file


def find(rows: Queries, container_id: str, file_id: str) -> tuple[ContainerFile, str]:
    """A file, and the key of its contents. Raises `NotFound`."""
    row = rows.one(f"{_SELECT} AND id = :id", container_id=container_id, id=file_id)
    if row is None:
        raise not_found(file_id)
    *values, key = row
    return ContainerFile(*values), key


def all_of(rows: Queries, container_id: str) -> Sequence[ContainerFile]:
    """Oldest first."""
    found = rows.all(f"{_SELECT} ORDER BY id", container_id=container_id)
    return [ContainerFile(*row[:-1]) for row in found]


def remove(rows: ContentRows, container_id: str, file_id: str) -> None:
    """Raises `NotFound`."""
    query = "SELECT content FROM container_files WHERE container_id = :container_id AND id = :id"
    if not rows.remove_contents(query, container_id=container_id, id=file_id):
        raise not_found(file_id)


def remove_all(rows: ContentRows, container_id: str) -> None:
    rows.remove_contents(
        "SELECT content FROM container_files WHERE container_id = :id", id=container_id
    )


def not_found(file_id: str) -> NotFound:
    return NotFound(f"Container file {file_id!r} not found.", "file_id", "container_file_not_found")


def _check_path_is_free(rows: Queries, container_id: str, path: str) -> None:
    """Raises `BadRequest` if path and another one cannot both exist, or there are too many."""
    query = "SELECT path FROM container_files WHERE container_id = :id AND path != :path"
    others = [other for (other,) in rows.all(query, id=container_id, path=path)]
    for other in others:
        if other.startswith(f"{path}/") or path.startswith(f"{other}/"):
            raise BadRequest(f"{path} and {other} cannot both exist.", "file", "path_taken")
    if len(others) >= MAX_FILES:
        raise BadRequest(
            f"A container may have at most {MAX_FILES} files: remove some first.",
            "file",
            "too_many_files",
        )
