"""Input items: normalized (as they are stored and listed) and parsed. Knows nothing of chat messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from emulator.core import json_codec
from emulator.core.errors import BadRequest, unsupported_type
from emulator.core.events import new_id
from emulator.core.part_cache import PartCache, PartLookup
from emulator.core.protocol import validated
from emulator.fronts.responses import hosted_items, tool_items, wire
from emulator.fronts.responses.item_types import (
    ITEMS,
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
"""Separates a response's text before an item of a type in `SEPARATING` from its text after that item."""
SEPARATING = ("code_interpreter_call", "mcp_call", "web_search_call", "shell_call_output")

# Unsupported fields of a part, and the field to use instead: the proxy does not fetch URLs of files.
_UNFETCHABLE = {
    "input_file": {"file_url": "file_data"},
}

# Types of items that become a call and its result, or are skipped -> the prefix of their ids.
_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(tool_items.CALLS, "tc_"),
    **dict.fromkeys(tool_items.OUTPUTS, "tco_"),
    **dict.fromkeys(tool_items.SKIPPED, "item_"),
    # Only a search that ran here has an id of its call.
    **dict.fromkeys(("tool_search_call", "tool_search_output"), "item_"),
    "mcp_call": hosted_items.CALL,
    "mcp_approval_request": hosted_items.APPROVAL,
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
    if not isinstance(kind, str) or kind not in wire.ITEMS:
        known = f"{', '.join(ITEMS)} and items of hosted tools"
        raise unsupported_type(kind, f"{place}.type", known, "unsupported_item")
    if kind == "item_reference":
        return item
    hosted_items.check_no_credentials(item, place)
    item.setdefault("id", new_id(ITEMS[kind][1] if kind in ITEMS else _OTHERS[kind]))
    if kind in _OTHERS:
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
    is_label = item["type"] in ITEMS and item["type"] not in _IDENTIFIED
    return {**item, "id": ""} if is_label and isinstance(item.get("id"), str) else item


def _parse(item: Json, place: str) -> Iterator[Item]:
    """Parse an item. An item of a hosted tool becomes a function call and its output."""
    kind = item["type"]
    # A local shell's output uses its call's id as its own.
    ids = {"id": item.get("id"), "call_id": item.get("call_id") or item.get("id")}
    ids["caller"] = item.get("caller")
    if kind in ITEMS:
        yield _parsed(item, place)
    elif kind in hosted_items.CONVERTED:
        yield from (_parsed(one, place) for one in hosted_items.converted(item))
    elif kind in tool_items.OUTPUTS:
        output = tool_items.OUTPUTS[kind](item)
        parts = [_text(output, output=False)] if isinstance(output, str) else output
        status = tool_items.output_status(item)
        output_item = {"type": "function_call_output", "output": parts, "status": status}
        yield _parsed({**output_item, **ids}, place)
    elif kind in tool_items.CALLS and (call := tool_items.CALLS[kind](item)) is not None:
        name, arguments, result = call
        text = json_codec.dumps(arguments).decode()
        yield _parsed({"type": "function_call", **ids, "name": name, "arguments": text}, place)
        if result is not None:
            parts = [_text(result, output=False)]
            yield _parsed({"type": "function_call_output", **ids, "output": parts}, place)


def _parsed(item: Json, place: str) -> Item:
    model, _ = ITEMS[item["type"]]
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
    if not isinstance(kind, str) or kind not in wire.PARTS:
        raise unsupported_type(kind, f"{place}.type", ", ".join(wire.PARTS))
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
