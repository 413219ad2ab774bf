"""One row for each type of content block: what a conversation has of it. Knows nothing of tools or answers.

Of an assistant's blocks some say nothing to a model here and are skipped: records of tools that another
service ran. Of a client's message nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.answering.summary import summary_message
from emulator.conversation.client_history import ClientHistory
from emulator.conversation.tool_search import BM25_SEARCH, REGEX_SEARCH
from emulator.core import json_codec
from emulator.core.errors import BadRequest, unsupported_type
from emulator.core.protocol import PARAGRAPH, FunctionCall, HistoryCall, Message
from emulator.core.wire import APPLIED, IGNORED, Decision, refused
from emulator.fronts.anthropic import parts
from emulator.fronts.anthropic.code_calls import CODE, Cells, Content
from emulator.fronts.anthropic.hosted_blocks import hosted_call_id, is_own
from emulator.fronts.anthropic.mcp_servers import LISTING
from emulator.fronts.anthropic.parts import Block, Converter, block_type, joined, mapping, text
from emulator.fronts.anthropic.tool_changes import ADDITION, REMOVAL, change_message, tool_changes

Json = dict[str, Any]
Role = Literal["user", "assistant", "system"]


class SentBlocks:
    """The blocks of a message that a client wrote. What stands between results and changes is one message."""

    def __init__(self, history: ClientHistory, role: Role) -> None:
        self._history = history
        self._role = role
        self._parts: list[Json] = []

    def add(self, block: Block, place: str) -> None:
        row = BLOCKS.get(block_type(block, place))
        if row is not None and row.sent is not None:
            self.flush()
            row.sent(self, block, place)
        else:
            self._parts += parts.block_parts(block, place, PARTS)

    def flush(self) -> None:
        if self._parts:
            self._history.add_message(Message(role=self._role, content=joined(self._parts)))
            self._parts.clear()

    def result(self, block: Block, place: str) -> None:
        result = _result(text(block, "tool_use_id", place), block, place)
        found = _references(block.get("content")) or None  # a client's own search for tools
        self._history.add_result(result.model_copy(update={"found_tools": found}))

    def change(self, block: Block, place: str) -> None:
        self._history.add_message(change_message(block, place))

    def summary(self, block: Block, place: str) -> None:
        _add_summary(self._history, block, place)


class AnswerBlocks:
    """The blocks of an assistant's message. Text and calls up to the result of a hosted call or of code share
    a message."""

    def __init__(self, history: ClientHistory, content: Sequence[Block], cells: Cells) -> None:
        self._history = history
        self._cells = cells
        self._fetched = {str(one.get("tool_use_id")) for one in map(mapping, content) if _page(one)}
        self._texts: list[str] = []
        self._calls: list[tuple[HistoryCall, str | None]] = []

    def add(self, block: Block, place: str) -> None:
        kind = block_type(block, place)
        row = BLOCKS.get(kind)
        if row is None:
            return
        if row.answered is not None:
            row.answered(self, block, place)
        elif row.part or row.sent:
            raise unsupported_type(kind, f"{place}.type", "those of an assistant's message")

    def flush(self) -> None:
        if words := PARAGRAPH.join(filter(None, self._texts)):
            self._history.add_message(Message(role="assistant", content=words))
        for call, caller in self._calls:
            self._history.add_call(call, caller)
        self._texts.clear()
        self._calls.clear()

    def words(self, block: Block, place: str) -> None:
        self._texts.append(text(block, "text", place))

    def thoughts(self, block: Block, _: str) -> None:
        self._history.add_reasoning(str(block.get("thinking") or ""))

    def skip(self, _: Block, __: str) -> None:
        """A file that the code of an answer wrote: the model has its name from the output."""

    def call(self, block: Block, place: str) -> None:
        self._add_call(block, _call(block, place))

    def mcp_call(self, block: Block, place: str) -> None:
        self._add_hosted_call(block, place, text(block, "server_name", place))

    def server_call(self, block: Block, place: str) -> None:
        """Of the calls that ran at Anthropic only what was fetched can be read."""
        if block.get("name") == CODE:
            self._cells.start(block)
        elif block.get("name") in (REGEX_SEARCH, BM25_SEARCH) or block.get("id") in self._fetched:
            self._add_hosted_call(block, place, "")

    def hosted_result(self, block: Block, place: str) -> None:
        self._add_result(_result(hosted_call_id(text(block, "tool_use_id", place)), block, place))

    def found_tools(self, block: Block, place: str) -> None:
        key = hosted_call_id(text(block, "tool_use_id", place))
        found = _references(mapping(block.get("content")).get("tool_references"))
        self._add_result(Message(role="tool", tool_call_id=key, content="", found_tools=found))

    def page(self, block: Block, place: str) -> None:
        self.flush()
        if document := _page(block):
            key = hosted_call_id(text(block, "tool_use_id", place))
            content = joined(parts.block_parts(document, f"{place}.content.content", PARTS))
            self._add_result(Message(role="tool", tool_call_id=key, content=content))

    def cell_end(self, block: Block, _: str) -> None:
        self.flush()
        self._cells.end(block)

    def summary(self, block: Block, place: str) -> None:
        self.flush()
        _add_summary(self._history, block, place)

    def _add_call(self, block: Block, call: HistoryCall) -> None:
        self._calls.append((call, self._cells.caller(block)))

    def _add_hosted_call(self, block: Block, place: str, label: str) -> None:
        call = _call(block, place)
        hosted = {"id": hosted_call_id(call.id), "server_label": label}
        self._add_call(block, call.model_copy(update=hosted))

    def _add_result(self, result: Message) -> None:
        self.flush()
        self._history.add_result(result)


@dataclass(frozen=True)
class BlockType:
    decision: Decision = APPLIED
    part: Converter | None = None
    """Of a client's message, or of a tool's result, to the parts of a chat message."""
    sent: Callable[[SentBlocks, Block, str], None] | None = None
    """Of a client's message, to messages of its own."""
    answered: Callable[[AnswerBlocks, Block, str], None] | None = None
    """Of an assistant's message."""
    streamed: str = ""
    """The field that the deltas of a stream make."""


_FOREIGN = BlockType(IGNORED)
"""It says nothing to a model here."""

BLOCKS: Mapping[str, BlockType] = {
    "text": BlockType(part=parts.text_part, answered=AnswerBlocks.words, streamed="text"),
    "image": BlockType(part=parts.image),
    "document": BlockType(part=parts.document),
    "search_result": BlockType(part=parts.search_result),
    "container_upload": BlockType(part=parts.upload, answered=AnswerBlocks.skip),
    "tool_reference": BlockType(part=parts.reference),
    "tool_result": BlockType(sent=SentBlocks.result),
    ADDITION: BlockType(sent=SentBlocks.change),
    REMOVAL: BlockType(sent=SentBlocks.change),
    "compaction": BlockType(
        sent=SentBlocks.summary, answered=AnswerBlocks.summary, streamed="content"
    ),
    "thinking": BlockType(answered=AnswerBlocks.thoughts, streamed="thinking"),
    "tool_use": BlockType(answered=AnswerBlocks.call, streamed="input"),
    "mcp_tool_use": BlockType(answered=AnswerBlocks.mcp_call, streamed="input"),
    "mcp_tool_result": BlockType(answered=AnswerBlocks.hosted_result),
    LISTING: BlockType(),  # `mcp_servers.listed_servers` reads it
    "server_tool_use": BlockType(answered=AnswerBlocks.server_call, streamed="input"),
    "code_execution_tool_result": BlockType(answered=AnswerBlocks.cell_end),
    "tool_search_tool_result": BlockType(answered=AnswerBlocks.found_tools),
    "web_fetch_tool_result": BlockType(answered=AnswerBlocks.page),
    "web_search_tool_result": _FOREIGN,
    "bash_code_execution_tool_result": _FOREIGN,
    "text_editor_code_execution_tool_result": _FOREIGN,
    "advisor_tool_result": _FOREIGN,
    "redacted_thinking": _FOREIGN,
    "fallback": _FOREIGN,
    "browser_state": BlockType(refused("The browser tools do not run here.")),
}
"""As of anthropic 2.14, anthropic.types.beta.beta_content_block_param and the content of its results. What is
ignored, or of another type, is skipped in an assistant's message, and refused in a user's."""

PARTS: Mapping[str, Converter] = {kind: row.part for kind, row in BLOCKS.items() if row.part}


def add_messages(
    history: ClientHistory, role: Role, content: Content, place: str, cells: Cells
) -> None:
    """Convert one message of the request, after those before it. Tool results become separate messages.
    Raises `BadRequest`."""
    if isinstance(content, str):
        history.add_message(Message(role=role, content=content))
        return
    is_answer = role == "assistant"
    blocks = AnswerBlocks(history, content, cells) if is_answer else SentBlocks(history, role)
    for n, block in enumerate(content):
        blocks.add(block, f"{place}[{n}]")
    blocks.flush()


def _add_summary(history: ClientHistory, block: Block, place: str) -> None:
    """The summary of the messages that a block replaces, and their changes of the tools."""
    if block.get("content") is None:  # no summary could be made
        return
    history.add_message(summary_message(text(block, "content", place)))
    for _, change in tool_changes([[block]]):
        history.add_message(change_message(change, place))


def _page(block: Block) -> Block:
    """The document that another service fetched; empty for other blocks, and what the log has."""
    result = mapping(block.get("content"))
    is_page = result.get("type") == "web_fetch_result"
    return mapping(result.get("content")) if is_page and not is_own(block) else {}


def _call(block: Block, place: str) -> HistoryCall:
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise BadRequest(f"{place}.input must be an object.", param=f"{place}.input")
    function = FunctionCall(
        name=text(block, "name", place), arguments=json_codec.dumps(arguments).decode()
    )
    return HistoryCall(id=text(block, "id", place), type="function", function=function)


def _result(key: str, block: Block, place: str) -> Message:
    """The result of the call with the id ``key``."""
    content = parts.content_parts(block.get("content"), f"{place}.content", PARTS)
    failed = block.get("is_error")
    if failed not in (None, True, False):
        raise BadRequest(f"{place}.is_error must be true or false.", f"{place}.is_error")
    return Message(role="tool", tool_call_id=key, content=joined(content), is_error=bool(failed))


def _references(blocks: Any) -> list[str]:
    """The names of the tools in ``tool_reference`` blocks."""
    listed = blocks if isinstance(blocks, list) else ()
    kind = "tool_reference"
    return [str(one.get("tool_name")) for one in map(mapping, listed) if one.get("type") == kind]
