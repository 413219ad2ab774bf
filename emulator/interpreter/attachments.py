"""Files in a client's messages: copied into the interpreter's container, or inlined for the upstream.

A part ``{"type": "file", "file": {...}}`` has its content as base64 (``file_data``) or names an uploaded
file (``file_id``), as in OpenAI's chat completions. Responses' ``input_file`` is converted to such a part.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from emulator.core.errors import BadRequest
from emulator.core.protocol import Message
from emulator.storage.container_files import ROOT
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.storage.files import Files, check_name

Part = dict[str, Any]


def with_files_in_container(
    messages: Sequence[Message], files: Files, containers: Containers, container: Container
) -> list[Message]:
    """Copy each file into ``container``. Returns the messages with paths instead of files.

    If the container has the path, the file is not copied again: a client sends the conversation with each
    turn, and code may have changed the file since. Raises `BadRequest`, `NotFound`, `TooLarge`.
    """
    present = {file.path for file in containers.files(container.id)}

    def copy(file: Part, place: str) -> Part:
        with _opened(file, files, container.client, place) as (name, content):
            path = ROOT + name
            if path not in present:
                containers.put_file(container.id, path, content, "user")
                present.add(path)
        return {"type": "text", "text": f"[the file {path}]"}

    return _with_files(_with_pictures(messages, files, container.client), copy)


def with_file_contents(messages: Sequence[Message], files: Files, client: str) -> list[Message]:
    """The messages with the contents of uploaded files instead of their ids. Raises `NotFound`."""

    def inline(file: Part, place: str) -> Part:
        if not file.get("file_id"):
            return {"type": "file", "file": file}
        with _opened(file, files, client, place) as (name, content):
            data = base64.b64encode(content.read()).decode()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        whole = {"filename": name, "file_data": f"data:{kind};base64,{data}"}
        return {"type": "file", "file": whole}

    return _with_files(_with_pictures(messages, files, client), inline)


def _with_pictures(messages: Sequence[Message], files: Files, client: str) -> list[Message]:
    """The messages with the contents of pictures that are given by the id of an uploaded file."""

    def change(part: Part, place: str) -> Part:
        reference = part["image_url"]
        with _opened(reference, files, client, f"{place}.image_url") as (name, content):
            kind = mimetypes.guess_type(name)[0] or ""
            if not kind.startswith("image/"):
                at = f"{place}.image_url.file_id"
                raise BadRequest(f"The file {name!r} is not a picture.", at)
            data = base64.b64encode(content.read()).decode()
        other = {key: value for key, value in reference.items() if key != "file_id"}
        return {"type": "image_url", "image_url": {**other, "url": f"data:{kind};base64,{data}"}}

    return _with_parts(messages, _is_uploaded_picture, change)


def _is_uploaded_picture(part: Part) -> bool:
    picture = part.get("image_url")
    return isinstance(picture, dict) and bool(picture.get("file_id")) and not picture.get("url")


def _with_files(messages: Sequence[Message], change: Callable[[Part, str], Part]) -> list[Message]:
    return _with_parts(
        messages, _is_file, lambda part, place: change(part["file"], f"{place}.file")
    )


def _with_parts(
    messages: Sequence[Message],
    matches: Callable[[Part], bool],
    change: Callable[[Part, str], Part],
) -> list[Message]:
    """The messages with ``change(part, its place)`` instead of each part that ``matches``."""
    changed = list(messages)
    for at, message in enumerate(messages):
        parts = message.content
        if isinstance(parts, list) and any(map(matches, parts)):
            parts = [
                change(part, f"messages[{at}].content[{n}]") if matches(part) else part
                for n, part in enumerate(parts)
            ]
            changed[at] = message.model_copy(update={"content": parts})
    return changed


def _is_file(part: Part) -> bool:
    return part.get("type") == "file" and isinstance(part.get("file"), dict)


@contextmanager
def _opened(file: Part, files: Files, client: str, place: str) -> Iterator[tuple[str, BinaryIO]]:
    """The name and content of the file at ``place``."""
    if file_id := file.get("file_id"):
        uploaded = files.get(client, str(file_id))
        with files.open(client, uploaded.id) as content:
            yield uploaded.filename, content
        return
    name, data = str(file.get("filename") or "file"), file.get("file_data")
    check_name(name, "filename")
    if not isinstance(data, str):
        raise BadRequest(f"{place} needs file_data or file_id.", f"{place}.file_data")
    yield name, BytesIO(decode_file(data, f"{place}.file_data"))


def decode_file(data: str, place: str) -> bytes:
    """The bytes of a file that is written as base64, or as a data: URL. Raises `BadRequest`."""
    try:
        return base64.b64decode(data.partition("base64,")[2] or data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"{place} is not base64: {error}.", place) from error
