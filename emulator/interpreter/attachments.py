"""Files in a client's messages: put into the interpreter's container, or written out for the upstream.

A part ``{"type": "file", "file": {...}}`` holds its content as base64 (``file_data``) or names an uploaded
file (``file_id``), as OpenAI's chat completions have it; Responses' ``input_file`` becomes one.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from emulator.errors import BadRequest
from emulator.protocol import Message
from emulator.storage.container_files import ROOT
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.storage.files import Files, check_name

Part = dict[str, Any]


def with_files_in_container(
    messages: Sequence[Message], files: Files, containers: Containers, container: Container
) -> list[Message]:
    """The messages with each file's path in ``container`` in place of the file.

    A file whose path the container has is there already: a conversation is sent again with each turn, and
    code may have changed the file since. Raises `BadRequest`, `NotFound`, `TooLarge`.
    """
    present = {file.path for file in containers.files(container.id)}

    def take(file: Part) -> Part:
        with _opened(file, files, container.client) as (name, content):
            path = ROOT + name
            if path not in present:
                containers.put_file(container.id, path, content, "user")
                present.add(path)
        return {"type": "text", "text": f"[the file {path}]"}

    return _with_files(_with_pictures(messages, files, container.client), take)


def with_file_contents(messages: Sequence[Message], files: Files, client: str) -> list[Message]:
    """The messages with the contents of uploaded files in them. Raises `NotFound`."""

    def write(file: Part) -> Part:
        if not file.get("file_id"):
            return {"type": "file", "file": file}
        with _opened(file, files, client) as (name, content):
            data = base64.b64encode(content.read()).decode()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        whole = {"filename": name, "file_data": f"data:{kind};base64,{data}"}
        return {"type": "file", "file": whole}

    return _with_files(_with_pictures(messages, files, client), write)


def _with_pictures(messages: Sequence[Message], files: Files, client: str) -> list[Message]:
    """The messages with the pictures that are named by the id of an uploaded file."""

    def change(part: Part) -> Part:
        named = part["image_url"]
        with _opened(named, files, client) as (name, content):
            kind = mimetypes.guess_type(name)[0] or ""
            if not kind.startswith("image/"):
                raise BadRequest(f"The file {name!r} is no picture.", "file_id")
            data = base64.b64encode(content.read()).decode()
        kept = {key: value for key, value in named.items() if key != "file_id"}
        return {"type": "image_url", "image_url": {**kept, "url": f"data:{kind};base64,{data}"}}

    return _with_parts(messages, _is_uploaded_picture, change)


def _is_uploaded_picture(part: Part) -> bool:
    picture = part.get("image_url")
    return isinstance(picture, dict) and bool(picture.get("file_id")) and not picture.get("url")


def _with_files(messages: Sequence[Message], change: Callable[[Part], Part]) -> list[Message]:
    return _with_parts(messages, _is_file, lambda part: change(part["file"]))


def _with_parts(
    messages: Sequence[Message], concerned: Callable[[Part], bool], change: Callable[[Part], Part]
) -> list[Message]:
    """The messages with what ``change`` makes of the parts that are ``concerned``."""
    changed = list(messages)
    for at, message in enumerate(messages):
        parts = message.content
        if isinstance(parts, list) and any(map(concerned, parts)):
            parts = [change(part) if concerned(part) else part for part in parts]
            changed[at] = message.model_copy(update={"content": parts})
    return changed


def _is_file(part: Part) -> bool:
    return part.get("type") == "file" and isinstance(part.get("file"), dict)


@contextmanager
def _opened(file: Part, files: Files, client: str) -> Iterator[tuple[str, BinaryIO]]:
    """A file's name and content."""
    if file_id := file.get("file_id"):
        found = files.get(client, str(file_id))
        with files.open(client, found.id) as content:
            yield found.filename, content
        return
    name, data = str(file.get("filename") or "file"), file.get("file_data")
    check_name(name, "filename")
    if not isinstance(data, str):
        raise BadRequest("A file needs file_data or file_id.", "file_data")
    try:
        yield name, BytesIO(base64.b64decode(data.partition("base64,")[2] or data, validate=True))
    except binascii.Error as error:
        raise BadRequest(f"file_data is not base64: {error}.", "file_data") from error
