"""Receive files as multipart forms, streamed to the disk; send files, streamed from it."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, BinaryIO
from urllib.parse import quote

from flask import Response, after_this_request, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import FormDataParser
from werkzeug.wsgi import wrap_file

from emulator.core.errors import BadRequest, StorageFailed, TooLarge
from emulator.web.middleware.in_flight import current

# The rest of a form besides its file: boundaries, headers, a few short fields.
_FORM_BYTES = 64 * 1024
_FORM_PARTS = 16

# Content types that no browser runs; what is not here is application/octet-stream.
CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".log": "text/plain; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".zip": "application/zip",
}


@dataclass(frozen=True)
class Upload:
    """A multipart form with its file, if it has one."""

    fields: dict[str, str]
    filename: str = ""
    content: IO[bytes] | None = None
    """Closed when the request has its response."""


def is_form() -> bool:
    return request.mimetype == "multipart/form-data"


def read_upload(scratch: Callable[[], IO[bytes]], max_file_bytes: int) -> Upload:
    """Read the request's form, its file into what ``scratch`` opens.

    Raises `BadRequest`, `TooLarge`, `StorageFailed`. A truncated form raises too, since its last
    boundary is missing.
    """
    if not is_form():
        raise BadRequest("Expected a multipart/form-data body with a file.", "file")
    opened = ExitStack()  # a form may have more files than the one that counts

    @after_this_request
    def close_files(response: Response) -> Response:
        with suppress(OSError):  # of a full disk, which still lacks space for what was buffered
            opened.close()
        return response

    request.max_content_length = max_file_bytes + _FORM_BYTES
    parser = FormDataParser(
        stream_factory=lambda *_args, **_named: opened.enter_context(scratch()),
        max_form_memory_size=2 * _FORM_BYTES,
        max_form_parts=_FORM_PARTS,
        silent=False,
    )
    try:
        with current.get().receiving():
            _, fields, files = parser.parse(
                request.stream, request.mimetype, request.content_length, request.mimetype_params
            )
    except RequestEntityTooLarge as error:
        raise TooLarge(
            f"A file may have {max_file_bytes} bytes at most.", "file", "file_too_large"
        ) from error
    except (ConnectionError, TimeoutError):  # of the client
        raise
    except OSError as error:
        raise StorageFailed(f"The proxy cannot store the file: {error.strerror}.") from error
    except ValueError as error:
        raise BadRequest(f"The multipart body cannot be read: {error}") from error
    file = files.get("file")
    if file is None:
        return Upload(fields.to_dict())
    return Upload(fields.to_dict(), file.filename or "", file.stream)


def content_type(filename: str) -> str:
    suffix = posixpath.splitext(filename)[1].lower()
    return CONTENT_TYPES.get(suffix, "application/octet-stream")


def content_reply(content: BinaryIO, filename: str) -> Response:
    """Stream ``content`` as a download, and close it. A browser must neither show nor run it here."""
    response = Response(
        wrap_file(request.environ, content),
        content_type=content_type(filename),
        direct_passthrough=True,
    )
    # The length of the opened file: the index may have a newer one already.
    response.content_length = content.seek(0, io.SEEK_END)
    content.seek(0)
    response.headers["content-disposition"] = (
        f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
    )
    response.headers["x-content-type-options"] = "nosniff"
    response.headers["content-security-policy"] = "sandbox; default-src 'none'"
    return response
