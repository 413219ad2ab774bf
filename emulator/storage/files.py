"""Files that clients upload, for later use in containers. Knows nothing of HTTP.

Source of the shapes and bounds: OpenAI's API reference, "Files".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from emulator.core.errors import BadRequest, NotFound, TooLarge
from emulator.database.database import Queries
from emulator.settings.settings import Settings
from emulator.storage.blob_store import CONTENT_COLUMN, BlobStore

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_MAX_FILES = 1000
"""Of one client."""
EXPIRES_SECONDS = range(3600, 2_592_001)
"""One hour to thirty days, like OpenAI."""

_TABLE = f"""
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT, {CONTENT_COLUMN})
"""
_INDEX = "CREATE INDEX IF NOT EXISTS files_client ON files (client, id)"
_LIVE = "client = :client AND (expires_at IS NULL OR expires_at > :now)"
_SELECT = (
    "SELECT id, client, filename, purpose, bytes, created_at, expires_at, content "
    f"FROM files JOIN contents ON content = key WHERE {_LIVE}"
)


@dataclass(frozen=True)
class File:
    id: str
    client: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None = None

    def json(self) -> dict[str, Any]:
        """The file as OpenAI's JSON object."""
        expiry = {"expires_at": self.expires_at} if self.expires_at is not None else {}
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            **expiry,
        }


class Files:
    """A file belongs to a client and does not exist for another one. Safe to share between threads."""

    def __init__(self, folder: BlobStore, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        folder.make_tables(_TABLE, _INDEX)

    def create(
        self,
        client: str,
        filename: str,
        content: IO[bytes],
        purpose: str,
        expires_seconds: int | None = None,
    ) -> File:
        """Store ``content``, whole or not at all. Raises `BadRequest`, `TooLarge`, `StorageFailed`."""
        check_name(filename)
        if purpose not in PURPOSES:
            expected = ", ".join(PURPOSES)
            raise BadRequest(f"Invalid 'purpose': expected one of {expected}.", "purpose")
        if expires_seconds is not None and expires_seconds not in EXPIRES_SECONDS:
            raise BadRequest(
                f"Invalid 'expires_after[seconds]': expected an integer from {EXPIRES_SECONDS[0]} "
                f"to {EXPIRES_SECONDS[-1]}.",
                "expires_after[seconds]",
            )
        now = self._folder.now()
        expires_at = None if expires_seconds is None else now + expires_seconds
        file_id = self._folder.new_id("file-")
        with self._folder.writing(content, self._check_size) as stored:
            file = File(file_id, client, filename, purpose, stored.bytes, now, expires_at)
            with self._folder.transaction() as rows:
                count, total = rows.one(
                    "SELECT count(*), coalesce(sum(bytes), 0) FROM files "
                    f"JOIN contents ON content = key WHERE {_LIVE}",
                    client=client,
                    now=now,
                )
                self._check_room(count + 1, int(total) + stored.bytes)
                rows.run(
                    "INSERT INTO files VALUES "
                    "(:id, :client, :filename, :purpose, :created_at, :expires_at, :content)",
                    **vars(file),
                    content=rows.add_content(stored),
                )
        return file

    def get(self, client: str, file_id: str) -> File:
        """Raises `NotFound`."""
        with self._folder.rows() as rows:
            return self._find(rows, client, file_id)[0]

    def open(self, client: str, file_id: str) -> BinaryIO:
        """The contents, which the caller closes. Raises `NotFound`."""
        return self._folder.open(lambda rows: self._find(rows, client, file_id)[1])

    def list(self, client: str, *, purpose: str | None = None) -> Sequence[File]:
        """Oldest first."""
        query = f"{_SELECT}{' AND purpose = :purpose' if purpose else ''} ORDER BY id"
        with self._folder.rows() as rows:
            found = rows.all(query, client=client, now=self._folder.now(), purpose=purpose)
        return [File(*row[:-1]) for row in found]

    def delete(self, client: str, file_id: str) -> None:
        """Raises `NotFound`."""
        query = f"SELECT content FROM files WHERE {_LIVE} AND id = :id"
        with self._folder.transaction() as rows:
            if not rows.remove_contents(query, client=client, id=file_id, now=self._folder.now()):
                raise _not_found(file_id)

    def sweep(self) -> None:
        """Remove the files that have expired."""
        with self._folder.transaction() as rows:
            rows.remove_contents(
                "SELECT content FROM files WHERE expires_at <= :now", now=self._folder.now()
            )

    def _find(self, rows: Queries, client: str, file_id: str) -> tuple[File, str]:
        """A file, and the key of its contents."""
        query = f"{_SELECT} AND id = :id"
        row = rows.one(query, client=client, id=file_id, now=self._folder.now())
        if row is None:
            raise _not_found(file_id)
        return File(*row[:-1]), row[-1]

    def _check_size(self, size: int) -> None:
        check_file_size(size, self._settings)

    def _check_room(self, count: int, total: int) -> None:
        if count > _MAX_FILES:
            raise BadRequest(
                f"There are already {_MAX_FILES} files, the limit: delete some first.",
                "file",
                "too_many_files",
            )
        if total > self._settings.files_bytes:
            raise TooLarge(
                f"All files together may have at most {self._settings.files_bytes} bytes: delete some first.",
                "file",
                "files_full",
            )


def check_file_size(size: int, settings: Settings) -> None:
    """Raises `TooLarge` if a file of ``size`` bytes, or a larger one, is not allowed."""
    if size > settings.max_file_bytes:
        raise TooLarge(
            f"A file may have at most {settings.max_file_bytes} bytes.", "file", "file_too_large"
        )


def check_name(name: str, param: str = "file") -> None:
    """Raises `BadRequest` unless ``name`` is a plain file name, without a folder, on every system."""
    problem = _name_problem(name)
    if problem:
        raise BadRequest(
            f"Invalid file name {name[:300]!r}: {problem}.", param, "invalid_file_name"
        )


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "it names a folder"
    if "/" in name or "\\" in name:
        return "it has a slash or a backslash"
    # Cc: control characters; Cs: halves of surrogate pairs, which have no UTF-8.
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "it has a control character"
    return "it is longer than 255 bytes" if len(name.encode()) > 255 else None


def _not_found(file_id: str) -> NotFound:
    return NotFound(f"No such File object: {file_id}", "file_id", "file_not_found", subject=file_id)
