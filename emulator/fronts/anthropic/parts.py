"""Blocks of a user's message or of a tool's result -> the parts of a chat message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.core.errors import BadRequest, unsupported_type
from emulator.interpreter.attachments import decode_file

Json = dict[str, Any]
Block = Mapping[str, Any]


def content_parts(content: Any, place: str) -> list[Json]:
    """The parts of a text or of an array of blocks. Raises `BadRequest`."""
    if isinstance(content, str):
        return [_plain(content)]
    if isinstance(content, list):
        return [part for n, one in enumerate(content) for part in parts(one, f"{place}[{n}]")]
    if content is not None:
        raise BadRequest(f"{place} must be text or an array of blocks.", param=place)
    return []


def parts(block: Any, place: str) -> list[Json]:
    """The parts of one block. Raises `BadRequest`."""
    kind = block_type(block, place)
    if kind not in PARTS:
        raise unsupported_type(kind, f"{place}.type", ", ".join(PARTS))
    return PARTS[kind](block, place)


def joined(content: Sequence[Json]) -> str | list[Json]:
    """Return a single text part as plain text; several parts stay separate."""
    if not content:
        return ""
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return [*content]


def block_type(block: Any, place: str) -> str:
    if not isinstance(block, Mapping):
        raise BadRequest(f"{place} must be an object.", param=place)
    return text(block, "type", place)


def text(block: Block, name: str, place: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{place}.{name} must be text.", param=f"{place}.{name}")
    return value


def mapping(value: Any) -> Block:
    return value if isinstance(value, Mapping) else {}


def _plain(words: str) -> Json:
    return {"type": "text", "text": words}


def _text(block: Block, place: str) -> list[Json]:
    return [_plain(text(block, "text", place))]


def _image(block: Block, place: str) -> list[Json]:
    source, at = mapping(block.get("source")), f"{place}.source"
    match source.get("type"):
        case "base64":
            kind = text(source, "media_type", at)
            url = f"data:{kind};base64,{text(source, 'data', at)}"
        case "url":
            url = text(source, "url", at)
        case "file":
            return [{"type": "image_url", "image_url": {"file_id": text(source, "file_id", at)}}]
        case other:
            raise unsupported_type(other, f"{at}.type", "base64, url, file")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(block: Block, place: str) -> list[Json]:
    source, at = mapping(block.get("source")), f"{place}.source"
    heading = [text(block, name, place) for name in ("title", "context") if block.get(name)]
    match source.get("type"):
        case "text":
            return [_plain("\n\n".join([*heading, text(source, "data", at)]))]
        case "content":
            content = content_parts(source.get("content"), f"{at}.content")
        case "base64":
            encoded = text(source, "data", at)
            decode_file(encoded, f"{at}.data")
            data = f"data:{text(source, 'media_type', at)};base64,{encoded}"
            name = heading[0] if block.get("title") else "document.pdf"
            content = [{"type": "file", "file": {"filename": name, "file_data": data}}]
        case "file":
            content = _upload(source, at)
        case other:
            raise unsupported_type(other, f"{at}.type", "text, content, base64, file")
    return [*([_plain("\n\n".join(heading))] if heading else []), *content]


def _search_result(block: Block, place: str) -> list[Json]:
    texts = [str(block.get(name) or "") for name in ("title", "source")]
    content = content_parts(block.get("content"), f"{place}.content")
    texts += [part["text"] for part in content if "text" in part]
    return [_plain("\n".join(filter(None, texts)))]


def _upload(block: Block, place: str) -> list[Json]:
    return [{"type": "file", "file": {"file_id": text(block, "file_id", place)}}]


def _reference(block: Block, place: str) -> list[Json]:
    text(block, "tool_name", place)
    return []  # `Message.found_tools` has it


PARTS: Mapping[str, Callable[[Block, str], list[Json]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "container_upload": _upload,
    "tool_reference": _reference,
}
