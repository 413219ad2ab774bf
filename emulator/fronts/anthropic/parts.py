"""Blocks of a user's message or of a tool's result -> the parts of a chat message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.core.errors import BadRequest, unsupported_type
from emulator.interpreter.attachments import decode_file

Json = dict[str, Any]
Block = Mapping[str, Any]
Converter = Callable[[Block, str], list[Json]]
"""Of a block, with its place."""


def joined(content: Sequence[Json]) -> str | list[Json]:
    """Return a single text part as plain text; several parts stay separate."""
    if not content:
        return ""
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return [*content]


def plain_parts(content: Any, place: str) -> list[Json]:
    """The parts of what has only texts and images: text, or an array of blocks. Raises `BadRequest`."""
    return content_parts(content, place, {"text": text_part, "image": image})


def content_parts(content: Any, place: str, known: Mapping[str, Converter]) -> list[Json]:
    """The parts of text, or of an array of blocks of ``known`` types. Raises `BadRequest`."""
    if isinstance(content, str):
        return [_plain(content)]
    if isinstance(content, list):
        return [
            part
            for n, block in enumerate(content)
            for part in block_parts(block, f"{place}[{n}]", known)
        ]
    if content is not None:
        raise BadRequest(f"{place} must be text or an array of blocks.", param=place)
    return []


def block_parts(block: Any, place: str, known: Mapping[str, Converter]) -> list[Json]:
    kind = block_type(block, place)
    if kind not in known:
        raise unsupported_type(kind, f"{place}.type", ", ".join(known))
    return known[kind](block, place)


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


def text_part(block: Block, place: str) -> list[Json]:
    return [_plain(text(block, "text", place))]


def image(block: Block, place: str) -> list[Json]:
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


def document(block: Block, place: str) -> list[Json]:
    source, at = mapping(block.get("source")), f"{place}.source"
    heading = [text(block, name, place) for name in ("title", "context") if block.get(name)]
    match source.get("type"):
        case "text":
            return [_plain("\n\n".join([*heading, text(source, "data", at)]))]
        case "content":
            content = plain_parts(source.get("content"), f"{at}.content")
        case "base64":
            encoded = text(source, "data", at)
            decode_file(encoded, f"{at}.data")
            data = f"data:{text(source, 'media_type', at)};base64,{encoded}"
            name = heading[0] if block.get("title") else "document.pdf"
            content = [{"type": "file", "file": {"filename": name, "file_data": data}}]
        case "file":
            content = upload(source, at)
        case other:
            raise unsupported_type(other, f"{at}.type", "text, content, base64, file")
    return [*([_plain("\n\n".join(heading))] if heading else []), *content]


def search_result(block: Block, place: str) -> list[Json]:
    texts = [str(block.get(name) or "") for name in ("title", "source")]
    content = plain_parts(block.get("content"), f"{place}.content")
    texts += [part["text"] for part in content if "text" in part]
    return [_plain("\n".join(filter(None, texts)))]


def upload(block: Block, place: str) -> list[Json]:
    return [{"type": "file", "file": {"file_id": text(block, "file_id", place)}}]


def reference(block: Block, place: str) -> list[Json]:
    text(block, "tool_name", place)
    return []  # `Message.found_tools` has it
