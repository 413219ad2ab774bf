"""Content blocks of a conversation -> the messages of a chat. Knows nothing of tools or of answers.

An assistant's blocks that no model here can use are skipped: the thinking of earlier turns, and records of
tools that another service ran.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from emulator.answering.summary import summary_message
from emulator.conversation.client_history import ClientHistory
from emulator.conversation.tool_search import BM25_SEARCH, REGEX_SEARCH
from emulator.core import json_codec
from emulator.core.errors import BadRequest, unsupported_type
from emulator.core.protocol import PARAGRAPH, FunctionCall, HistoryCall, Message
from emulator.fronts.anthropic.code_calls import CODE, Cells, Content
from emulator.fronts.anthropic.hosted_blocks import hosted_call_id, is_own
from emulator.fronts.anthropic.parts import (
    Block,
    block_type,
    content_parts,
    joined,
    mapping,
    parts,
    text,
)
from emulator.fronts.anthropic.tool_changes import ADDITION, REMOVAL, change_message, tool_changes

Json = dict[str, Any]
Role = Literal["user", "assistant", "system"]


def add_messages(
    history: ClientHistory, role: Role, content: Content, place: str, cells: Cells
) -> None:
    """Convert one message of the request, after those before it. Tool results become separate messages.
    Raises `BadRequest`."""
    if isinstance(content, str):
        history.add_message(Message(role=role, content=content))
        return
    if role == "assistant":
        _add_answer(history, content, place, cells)
        return
    pending: list[Json] = []

    def flush() -> None:
        if pending:
            history.add_message(Message(role=role, content=joined(pending)))
            pending.clear()

    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        match block_type(block, at):
            case "tool_result":
                flush()
                history.add_result(_result(block, at))
            case "compaction":
                flush()
                _add_summary(history, block, at)
            case kind if kind in (ADDITION, REMOVAL):
                flush()
                history.add_message(change_message(block, at))
            case _:
                pending += parts(block, at)
    flush()


def _add_summary(history: ClientHistory, block: Block, place: str) -> None:
    """The summary of the messages that a block replaces, and their changes of the tools."""
    if block.get("content") is None:  # no summary could be made
        return
    history.add_message(summary_message(text(block, "content", place)))
    for _, change in tool_changes([[block]]):
        history.add_message(change_message(change, place))


def _add_answer(history: ClientHistory, content: Sequence[Block], place: str, cells: Cells) -> None:
    """Text and calls up to the result of a hosted call or of code share a message."""
    texts: list[str] = []
    calls: list[tuple[HistoryCall, str | None]] = []

    def flush() -> None:
        if words := PARAGRAPH.join(filter(None, texts)):
            history.add_message(Message(role="assistant", content=words))
        for call, caller in calls:
            history.add_call(call, caller)
        texts.clear()
        calls.clear()

    fetched = {str(block.get("tool_use_id")) for block in map(mapping, content) if _page(block)}
    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        match _answer_type(block, at):
            case "thinking":
                history.add_reasoning(str(block.get("thinking") or ""))
            case "text":
                texts.append(text(block, "text", at))
            case "tool_use":
                calls.append((_call(block, at), cells.caller(block)))
            case "mcp_tool_use" | "server_tool_use" if block.get("name") != CODE:
                calls += ((call, cells.caller(block)) for call in _hosted_calls(block, at, fetched))
            case "server_tool_use":
                cells.start(block)
            case kind if kind in _WHOLE:
                flush()
                _WHOLE[kind](history, block, at, cells)
    flush()


def _add_hosted_result(history: ClientHistory, block: Block, place: str, _: Cells) -> None:
    history.add_result(_hosted_result(block, place))


def _add_page(history: ClientHistory, block: Block, place: str, _: Cells) -> None:
    if document := _page(block):
        key = hosted_call_id(text(block, "tool_use_id", place))
        content = joined(parts(document, f"{place}.content.content"))
        history.add_result(Message(role="tool", tool_call_id=key, content=content))


def _page(block: Block) -> Block:
    """The document that another service fetched; empty for other blocks, and what the log has."""
    result = mapping(block.get("content"))
    is_page = result.get("type") == "web_fetch_result"
    return mapping(result.get("content")) if is_page and not is_own(block) else {}


_WHOLE: Mapping[str, Callable[[ClientHistory, Block, str, Cells], None]] = {
    "compaction": lambda history, block, place, _: _add_summary(history, block, place),
    "mcp_tool_result": _add_hosted_result,
    "tool_search_tool_result": _add_hosted_result,
    "web_fetch_tool_result": _add_page,
    "code_execution_tool_result": lambda _, block, __, cells: cells.end(block),
}
"""Blocks of an answer that become messages of their own."""


def _answer_type(block: Any, place: str) -> str:
    kind = block_type(block, place)
    if kind in ("tool_result", "image", "document", "search_result"):
        raise unsupported_type(kind, f"{place}.type", "those of an assistant's message")
    return kind


def _call(block: Block, place: str) -> HistoryCall:
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise BadRequest(f"{place}.input must be an object.", param=f"{place}.input")
    function = FunctionCall(
        name=text(block, "name", place), arguments=json_codec.dumps(arguments).decode()
    )
    return HistoryCall(id=text(block, "id", place), type="function", function=function)


def _hosted_calls(block: Block, place: str, fetched: Collection[str]) -> Iterator[HistoryCall]:
    """The call of a block. Of those that ran at Anthropic only what was ``fetched`` can be read."""
    is_search = block.get("name") in (REGEX_SEARCH, BM25_SEARCH)
    if block["type"] == "mcp_tool_use" or is_search or block.get("id") in fetched:
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
