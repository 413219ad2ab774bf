"""What a reply has besides words and calls, in fields of OpenAI's models and of OpenRouter: a refusal, cited
pages, images that the model made. What is malformed is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from emulator.core.events import ModelImage, PageCited, RefusalDelta, ReplyExtra

FIELDS = ("refusal", "annotations", "images")


def reply_extras(delta: Mapping[str, Any]) -> Iterator[ReplyExtra]:
    """Read one delta, which is a server's own JSON."""
    if isinstance(refusal := delta.get("refusal"), str) and refusal:
        yield RefusalDelta(refusal)
    for cited in _objects(delta.get("annotations"), "url_citation"):
        if url := _text(cited, "url"):
            places = (_number(cited, "start_index"), _number(cited, "end_index"))
            title = _text(cited, "title") or url
            yield PageCited(url, title, _text(cited, "content"), *places)
    for image in _objects(delta.get("images"), "image_url"):
        if url := _text(image, "url"):
            yield ModelImage(url)


def _objects(values: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    """The objects of one type in a list, each under the name of its type."""
    for value in values if isinstance(values, list) else ():
        inner = value.get(kind) if isinstance(value, dict) else None
        if isinstance(inner, dict):
            yield inner


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and value > 0 else 0
