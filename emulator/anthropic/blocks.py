"""Content blocks of a conversation -> the messages of a chat. Knows nothing of tools or of answers.

An assistant's blocks that no model here can use are skipped: the thinking of earlier turns, and records of
tools that another service ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from emulator import json_codec
from emulator.answering.summary import introduced
from emulator.answering.tool_search import BM25_SEARCH, REGEX_SEARCH
from emulator.anthropic.code_calls import CODE, Cells, Content
from emulator.anthropic.hosted_blocks import hosted_call_id
from emulator.anthropic.parts import (
    Block,
    block_type,
    content_parts,
    joined,
    mapping,
    parts,
    text,
    unknown_type,
)
from emulator.anthropic.tool_changes import ADDITION, REMOVAL, change_message, tool_changes
from emulator.errors import BadRequest
from emulator.events import from_same_answer
from emulator.protocol import FunctionCall, HistoryCall, Message

Json = dict[str, Any]
Role = Literal["user", "assistant", "system"]


def messages(role: Role, content: Content, place: str, cells: Cells | None = None) -> list[Message]:
    """Convert one message of the request, after those before it. Tool results become separate messages.
    Raises `BadRequest`."""
    if isinstance(content, str):
        return [Message(role=role, content=content)]
    if role == "assistant":
        return _assistant(content, place, cells or Cells())
    converted: list[Message] = []
    pending: list[Json] = []
    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        match block_type(block, at):
            case "tool_result":
                whole = [_result(block, at)]
            case "compaction":
                whole = _summary(block, at)
            case kind if kind in (ADDITION, REMOVAL):
                whole = [change_message(block, at)]
            case _:
                pending += parts(block, at)
                continue
        converted += [*_message(role, pending), *whole]
        pending = []
    return [*converted, *_message(role, pending)]


def _message(role: Role, pending: Sequence[Json]) -> list[Message]:
    return [Message(role=role, content=joined(pending))] if pending else []


def _summary(block: Block, place: str) -> list[Message]:
    """The summary of the messages that a block replaces, and their changes of the tools."""
    if block.get("content") is None:  # no summary could be made
        return []
    summary = Message(role="user", content=introduced(text(block, "content", place)))
    changes = tool_changes([[block]])
    return [summary, *(change_message(change, place) for _, change in changes)]


def _assistant(content: Sequence[Block], place: str, cells: Cells) -> list[Message]:
    """Convert an answer: text and calls share a message; results of hosted calls, and each cell with its
    output, are messages in between. A cell that waited for results is with its first calls."""
    converted: list[Message] = []
    texts: list[str] = []
    calls: list[HistoryCall] = []
    thoughts: list[str] = []

    def flush() -> None:
        words = "\n\n".join(filter(None, texts))
        last = _last_calls(converted)
        if (
            not words
            and calls
            and last is not None
            and from_same_answer(calls[0].id, last[1][0].id)
        ):
            # These calls left with hosted calls, whose results are already there.
            at, others = last
            together = {"tool_calls": [*others, *calls]}
            converted[at] = converted[at].model_copy(update=together)
        elif words or calls:
            fields: Json = {"tool_calls": [*calls]} if calls else {}  # some servers refuse null
            fields["program"] = cells.program(calls)
            fields["reasoning"] = "\n".join(filter(None, thoughts))
            thoughts.clear()
            converted.append(Message(role="assistant", content=words or None, **fields))
        texts.clear()
        calls.clear()

    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        match _answer_type(block, at):
            case "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            case "text":
                texts.append(text(block, "text", at))
            case "tool_use":
                calls.append(cells.call(_call(block, at), block))
            case "mcp_tool_use" | "server_tool_use" if block.get("name") != CODE:
                calls += (cells.call(call, block) for call in _hosted_calls(block, at))
            case "server_tool_use":
                cells.start(block)
            case kind if kind in _WHOLE:
                flush()
                converted += _whole(block, at, cells)
    flush()
    return converted


_WHOLE = frozenset(
    {"compaction", "mcp_tool_result", "tool_search_tool_result", "code_execution_tool_result"}
)
"""Blocks of an answer that become messages of their own."""


def _whole(block: Block, place: str, cells: Cells) -> list[Message]:
    if block["type"] == "compaction":
        return _summary(block, place)
    if block["type"] == "code_execution_tool_result":
        return [*cells.end(block)]
    return [_hosted_result(block, place)]


def _answer_type(block: Any, place: str) -> str:
    kind = block_type(block, place)
    if kind in ("tool_result", "image", "document", "search_result"):
        raise unknown_type(kind, place, "those of an assistant's message")
    return kind


def _last_calls(converted: Sequence[Message]) -> tuple[int, list[HistoryCall]] | None:
    """The calls before the results that end ``converted``, and the place of their message."""
    for at in range(len(converted) - 1, -1, -1):
        if converted[at].role != "tool":
            calls = converted[at].tool_calls
            return (at, calls) if calls else None
    return None


def _call(block: Block, place: str) -> HistoryCall:
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise BadRequest(f"{place}.input must be an object.", param=f"{place}.input")
    function = FunctionCall(
        name=text(block, "name", place), arguments=json_codec.dumps(arguments).decode()
    )
    return HistoryCall(id=text(block, "id", place), type="function", function=function)


def _hosted_calls(block: Block, place: str) -> Iterator[HistoryCall]:
    """The call of a block; none for a tool that ran at Anthropic."""
    is_search = block.get("name") in (REGEX_SEARCH, BM25_SEARCH)
    if block["type"] == "mcp_tool_use" or is_search:
        call = _call(block, place)
        label = "" if block["type"] == "server_tool_use" else text(block, "server_name", place)
        hosted = {"id": hosted_call_id(call.id), "server_label": label}
        yield call.model_copy(update=hosted)


def _hosted_result(block: Block, place: str) -> Message:
    key = hosted_call_id(text(block, "tool_use_id", place))
    if block["type"] == "tool_search_tool_result":
        found = _references(mapping(block.get("content")).get("tool_references"))
        return Message(role="tool", tool_call_id=key, content="", found_tools=found)
    content, failed = content_parts(block.get("content"), f"{place}.content"), _failed(block, place)
    return Message(role="tool", tool_call_id=key, content=joined(content), is_error=failed)


def _result(block: Block, place: str) -> Message:
    content, failed = content_parts(block.get("content"), f"{place}.content"), _failed(block, place)
    says_so = content and str(content[0].get("text", "")).lstrip().lower().startswith("error")
    if failed and not says_so:
        content.insert(0, {"type": "text", "text": "Error:"})
    key = text(block, "tool_use_id", place)
    result = Message(role="tool", tool_call_id=key, content=joined(content), is_error=failed)
    found = _references(block.get("content")) or None  # a client's own search for tools
    return result.model_copy(update={"found_tools": found})


def _failed(block: Block, place: str) -> bool:
    value = block.get("is_error")
    if value not in (None, True, False):
        raise BadRequest(f"{place}.is_error must be true or false.", f"{place}.is_error")
    return bool(value)


def _references(blocks: Any) -> list[str]:
    """The names of the tools in ``tool_reference`` blocks."""
    listed = blocks if isinstance(blocks, list) else ()
    kind = "tool_reference"
    return [str(one.get("tool_name")) for one in map(mapping, listed) if one.get("type") == kind]
