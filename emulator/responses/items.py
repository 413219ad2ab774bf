"""Input items: parsed, given ids, and as they are kept and listed. Knows nothing of chat messages.

The tables `ITEMS` and `PARTS` say what an input may consist of. What clients send back of an output is
tolerated as they send it: with fields that are null, and with those that only outputs have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from emulator import json_codec
from emulator.errors import BadRequest
from emulator.events import new_id
from emulator.protocol import validated
from emulator.responses import tool_items

Json: TypeAlias = dict[str, Any]
Status = Literal["in_progress", "interpreting", "completed", "incomplete", "failed"]

MAX_ITEMS = 10_000
MESSAGE_BREAK = "\n\n"
"""Between the words of a response before code and those behind it."""


class Shape(BaseModel):
    """What is not used is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


# Parts of messages and of calls' outputs


class TextPart(Shape):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class RefusalPart(Shape):
    type: Literal["refusal"]
    refusal: str


class ImagePart(Shape):
    type: Literal["input_image"]
    image_url: str | None = Field(None, description="a URL, or the picture itself as a data: URL")
    file_id: str | None = Field(None, description="of the Files API")
    detail: str | None = None


class FilePart(Shape):
    type: Literal["input_file"]
    file_data: str | None = Field(None, description="the file as a data: URL or base64")
    file_id: str | None = Field(None, description="of the Files API")
    filename: str | None = None


Part = TextPart | RefusalPart | ImagePart | FilePart

PARTS: Mapping[str, type[Part]] = {
    "input_text": TextPart,
    "output_text": TextPart,
    "text": TextPart,
    "summary_text": TextPart,
    "reasoning_text": TextPart,
    "refusal": RefusalPart,
    "input_image": ImagePart,
    "input_file": FilePart,
}

# What a part may not hold, since neither the proxy nor a model without such an API can fetch it.
_FETCHED = {
    "input_file": {"file_url": "file_data"},
}


# Items


class Message(Shape):
    type: Literal["message"] = "message"
    id: str
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[Part, ...]


class FunctionCall(Shape):
    type: Literal["function_call"]
    id: str
    call_id: str = Field(min_length=1)
    name: str
    namespace: str | None = None
    arguments: str


class CustomCall(Shape):
    type: Literal["custom_tool_call"]
    id: str
    call_id: str = Field(min_length=1)
    name: str
    namespace: str | None = None
    input: str


class CallOutput(Shape):
    """What a call gave, whatever the type of its tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    id: str
    call_id: str = Field("", description='of the call, or "" where nobody said')
    output: tuple[Part, ...]


class Reasoning(Shape):
    type: Literal["reasoning"]
    id: str


class CodeOutput(Shape):
    type: Literal["logs", "image"]
    logs: str = ""


class CodeCall(Shape):
    type: Literal["code_interpreter_call"]
    id: str
    code: str = ""
    container_id: str = ""
    outputs: tuple[CodeOutput, ...] | None = None
    status: Status = "completed"


class Compaction(Shape):
    """A summary of what was said before, opaque to clients (`compaction.py`)."""

    type: Literal["compaction"]
    id: str
    encrypted_content: str = ""


class Reference(Shape):
    type: Literal["item_reference"]
    id: str


Item = (
    Message | FunctionCall | CustomCall | CallOutput | Reasoning | CodeCall | Compaction | Reference
)

ITEMS: Mapping[str, tuple[type[Item], str]] = {
    "message": (Message, "msg_"),
    "function_call": (FunctionCall, "fc_"),
    "function_call_output": (CallOutput, "fco_"),
    "custom_tool_call": (CustomCall, "ctc_"),
    "custom_tool_call_output": (CallOutput, "ctco_"),
    "reasoning": (Reasoning, "rs_"),
    "code_interpreter_call": (CodeCall, "ci_"),
    "compaction": (Compaction, "cmp_"),
    "item_reference": (Reference, ""),
}

# Items that a model reads as a call and its result, or not at all: the prefixes of their ids.
_OTHERS: Mapping[str, str] = {
    **dict.fromkeys(tool_items.CALLS, "tc_"),
    **dict.fromkeys(tool_items.OUTPUTS, "tco_"),
    **dict.fromkeys(tool_items.SKIPPED, "item_"),
}


def parse(items: Sequence[Json], place: str = "input") -> list[Item]:
    """Items as `normal` makes them. Raises `BadRequest` naming the place: ``input[2].content[0].type``."""
    return [read for n, item in enumerate(items) for read in _read(item, f"{place}[{n}]")]


def normal(written: Any, place: str = "input") -> list[Json]:
    """What was sent as whole items: each with its type and an id, texts as lists of parts, no nulls.

    Raises `BadRequest`.
    """
    if isinstance(written, str):
        written = [{"role": "user", "content": written}]
    if not isinstance(written, list):
        raise BadRequest(f"{place} must be text or an array of items.", param=place)
    if len(written) > MAX_ITEMS:
        raise BadRequest(f"{place} has more than {MAX_ITEMS} items.", param=place)
    return [_normal(item, f"{place}[{n}]") for n, item in enumerate(written)]


def quoted(value: Any) -> str:
    """What a client sent, for a message about it."""
    return repr(value)[:100]


def _normal(written: Any, place: str) -> Json:
    if not isinstance(written, dict):
        raise BadRequest(f"{place} must be an object.", param=place)
    item = {name: value for name, value in written.items() if value is not None}
    kind = item.get("type")
    if kind is None and "role" in item:
        item["type"] = kind = "message"
    elif kind is None and set(item) == {"id"}:
        item["type"] = kind = "item_reference"
    if not isinstance(kind, str) or not (kind in ITEMS or kind in _OTHERS):
        known = ", ".join(ITEMS)
        message = (
            f"{place}.type is {quoted(kind)}; supported are {known} and those of hosted tools."
        )
        raise BadRequest(message, param=f"{place}.type", code="unsupported_item")
    if kind == "item_reference":
        return item
    item.setdefault("id", new_id(ITEMS[kind][1] if kind in ITEMS else _OTHERS[kind]))
    if kind in _OTHERS:
        return item
    spoken = item.get("role") == "assistant"
    for name in ("content", "output"):
        if isinstance(text := item.get(name), str):
            item[name] = [_text(text, output=spoken)]
    if kind not in ("reasoning", "compaction"):
        item.setdefault("status", "completed")
    return item


def _text(text: str, *, output: bool) -> Json:
    if output:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def _read(item: Json, place: str) -> Iterator[Item]:
    """The item, or the call and the result that stand for it."""
    kind = item["type"]
    if kind in ITEMS:
        yield _parsed(item, place)
    elif kind in tool_items.OUTPUTS:
        said = tool_items.output(item)
        parts = [_text(said, output=False)] if isinstance(said, str) else said
        # A local shell's output has its call's id for its own.
        key = item.get("call_id") or item.get("id")
        whole = {"type": "function_call_output", "id": item["id"], "call_id": key, "output": parts}
        yield _parsed(whole, place)
    elif kind in tool_items.CALLS and (told := tool_items.call(item)) is not None:
        name, arguments, result = told
        key = item.get("call_id") or item.get("id")
        named = {"id": item["id"], "call_id": key}
        written = json_codec.dumps(arguments).decode()
        yield _parsed({"type": "function_call", **named, "name": name, "arguments": written}, place)
        if result is not None:
            parts = [_text(result, output=False)]
            yield _parsed({"type": "function_call_output", **named, "output": parts}, place)


def _parsed(item: Json, place: str) -> Item:
    model, _ = ITEMS[item["type"]]
    read = dict(item)
    for name in ("content", "output"):
        # A message says its content, a call its output; reasoning is not told to the model.
        if name in model.model_fields:
            read[name] = _parts(item.get(name), f"{place}.{name}")
    return validated(model, read, place)


def _parts(written: Any, place: str) -> tuple[Part, ...]:
    if not isinstance(written, list):
        raise BadRequest(f"{place} must be text or an array of parts.", param=place)
    return tuple(_part(part, f"{place}[{n}]") for n, part in enumerate(written))


def _part(written: Any, place: str) -> Part:
    kind = written.get("type") if isinstance(written, dict) else None
    if not isinstance(kind, str) or kind not in PARTS:
        known = ", ".join(PARTS)
        message = f"{place}.type is {quoted(kind)}; supported here are {known}."
        raise BadRequest(message, param=f"{place}.type")
    for name, instead in _FETCHED.get(kind, {}).items():
        if written.get(name) and not written.get(instead):
            message = f"{place}.{name} is not supported here; send {instead} with the content."
            raise BadRequest(message, param=f"{place}.{name}")
    part = validated(PARTS[kind], written, place)
    if isinstance(part, ImagePart) and not (part.image_url or part.file_id):
        message = f"{place}.image_url is missing: a picture has an image_url or a file_id."
        raise BadRequest(message, param=f"{place}.image_url")
    return part
