"""Input items: normalized (as they are stored and listed) and parsed. Knows nothing of chat messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from emulator.core.errors import BadRequest, unsupported_type
from emulator.core.events import new_id
from emulator.core.part_cache import PartCache, PartLookup
from emulator.core.protocol import validated
from emulator.fronts.responses.hosted_items import check_no_credentials
from emulator.fronts.responses.item_table import ITEMS
from emulator.fronts.responses.item_types import (
    PARTS,
    CallItem,
    CallOutputItem,
    FilePart,
    ImagePart,
    Item,
    Part,
    ReasoningItem,
)
from emulator.interpreter.attachments import decode_file

Json: TypeAlias = dict[str, Any]

MAX_ITEMS = 10_000
TRIGGER = "compaction_trigger"
MESSAGE_BREAK = "\n\n"
"""Separates a response's text before an item that ``separates`` from its text after that item."""

# Unsupported fields of a part, and the field to use instead: the proxy does not fetch URLs of files.
_UNFETCHABLE = {
    "input_file": {"file_url": "file_data"},
}


def parse(
    items: Sequence[Json],
    place: str = "input",
    *,
    client: str = "",
    cache: PartCache | None = None,
) -> list[Item]:
    """Parse normalized items. Raises `BadRequest`, which names the place: ``input[2].content[0].type``. Items
    that the ``client`` sent before are the same objects."""
    parts = [*map(_without_label, items)]
    lookup = cache.look_up(client, "input", parts) if cache is not None else PartLookup(parts)
    parsed = [
        item if isinstance(item, tuple) else tuple(_parse(item, f"{place}[{n}]"))
        for n, item in enumerate(lookup.parts)
    ]
    lookup.store(parsed)
    return [*chain.from_iterable(parsed)]


def normalize(value: Any, place: str = "input") -> list[Json]:
    """Give each item its type and an id, write texts as lists of parts, and drop nulls.

    Raises `BadRequest`.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise BadRequest(f"{place} must be text or an array of items.", param=place)
    if len(value) > MAX_ITEMS:
        raise BadRequest(f"{place} has more than {MAX_ITEMS} items.", param=place)
    normal = [_normalized(item, f"{place}[{n}]") for n, item in enumerate(value)]
    for n, item in enumerate(normal[:-1]):
        if item["type"] == TRIGGER:
            message = f"{place}[{n}].type: a {TRIGGER} must be the last input item."
            raise BadRequest(message, param=f"{place}[{n}].type")
    return normal


def quoted(value: Any) -> str:
    """Quote a client's value in an error message, truncated."""
    return repr(value)[:100]


def check_outputs(before: Sequence[Item], new: Sequence[Item]) -> None:
    """Check that each output among the ``new`` items of a continued response has its call, as OpenAI does.

    Raises `BadRequest`.
    """
    calls = {one.call_id for one in (*before, *new) if isinstance(one, CallItem)}
    for one in new:
        if isinstance(one, CallOutputItem) and one.found is None and one.call_id not in calls:
            message = f"No tool call found for the output with call_id {quoted(one.call_id)}."
            raise BadRequest(message, "input")


def _normalized(value: Any, place: str) -> Json:
    if not isinstance(value, dict):
        raise BadRequest(f"{place} must be an object.", param=place)
    item = {name: field for name, field in value.items() if field is not None}
    kind = item.get("type")
    if kind is None and "role" in item:
        item["type"] = kind = "message"
    elif kind is None and set(item) == {"id"}:
        item["type"] = kind = "item_reference"
    if not isinstance(kind, str) or kind not in ITEMS:
        known = [name for name, row in ITEMS.items() if row.model is not None]
        listed = f"{', '.join(known)} and items of hosted tools"
        raise unsupported_type(kind, f"{place}.type", listed, "unsupported_item")
    if kind == "item_reference":
        return item
    check_no_credentials(item, place)
    item.setdefault("id", new_id(ITEMS[kind].prefix))
    if ITEMS[kind].model is None:
        return item
    by_model = item.get("role") == "assistant"
    for name in ("content", "output"):
        if isinstance(text := item.get(name), str):
            item[name] = [_text(text, output=by_model)]
    if kind not in ("reasoning", "compaction", "program", "mcp_approval_response"):
        item.setdefault("status", "completed")
    return item


def _text(text: str, *, output: bool) -> Json:
    if output:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


_IDENTIFIED = ("code_interpreter_call", "item_reference")


def _without_label(item: Json) -> Json:
    """The item without an id that nothing reads: `normalize` may have made it for this request."""
    kind = item["type"]
    is_label = ITEMS[kind].model is not None and kind not in _IDENTIFIED
    return {**item, "id": ""} if is_label and isinstance(item.get("id"), str) else item


def _parse(item: Json, place: str) -> Iterator[Item]:
    """Parse an item. One of a tool that is no function becomes a function call, its output, or both."""
    row = ITEMS[item["type"]]
    if row.convert is not None:
        for one in row.convert(item):
            model = ITEMS[one["type"]].model
            assert model is not None
            yield _parsed(model, one, place)
    elif row.model is not None:
        yield _parsed(row.model, item, place)


def _parsed(model: type[Item], item: Json, place: str) -> Item:
    fields = dict(item)
    for name in ("content", "output"):
        if name in model.model_fields and model is not ReasoningItem:
            fields[name] = _parts(item.get(name), f"{place}.{name}")
    return validated(model, fields, place)


def _parts(value: Any, place: str) -> tuple[Part, ...]:
    if not isinstance(value, list):
        raise BadRequest(f"{place} must be text or an array of parts.", param=place)
    return tuple(_part(part, f"{place}[{n}]") for n, part in enumerate(value))


def _part(value: Any, place: str) -> Part:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in PARTS:
        raise unsupported_type(kind, f"{place}.type", ", ".join(PARTS))
    for name, instead in _UNFETCHABLE.get(kind, {}).items():
        if value.get(name) and not value.get(instead):
            message = f"{place}.{name} is not supported; send {instead} with the content."
            raise BadRequest(message, param=f"{place}.{name}")
    part = validated(PARTS[kind], value, place)
    if isinstance(part, FilePart) and not part.file_id:
        if part.file_data is None:
            message = f"{place}.file_data is missing: a file has file_data or a file_id."
            raise BadRequest(message, param=f"{place}.file_data")
        decode_file(part.file_data, f"{place}.file_data")
    if isinstance(part, ImagePart) and not (part.image_url or part.file_id):
        message = f"{place}.image_url is missing: an image has an image_url or a file_id."
        raise BadRequest(message, param=f"{place}.image_url")
    return part
