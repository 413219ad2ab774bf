"""Items -> the messages of a chat. Knows nothing of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.answering.cell_resume import NO_OUTPUT
from emulator.answering.summary import summary_message
from emulator.conversation.client_history import ClientHistory
from emulator.core.events import IMAGE, calling_cell
from emulator.core.protocol import (
    PARAGRAPH,
    CustomCall,
    FunctionCall,
    HistoryCall,
    HistoryProgram,
    Message,
)
from emulator.fronts.responses import item_types
from emulator.fronts.responses.callers import program_of
from emulator.fronts.responses.compaction import summary_of
from emulator.fronts.responses.hosted_items import call_id
from emulator.fronts.responses.item_types import Item, Part
from emulator.fronts.responses.items import MESSAGE_BREAK, Json
from emulator.fronts.responses.tools import chat_names, qualified
from emulator.rendering.prompt import cell_history


def messages(items: Sequence[Item]) -> list[Message]:
    """Convert ``items``, in order. Only native models see the reasoning of earlier turns."""
    cells = [one for one in items if isinstance(one, item_types.CodeCallItem)]
    calls = (one.call_id for one in items if isinstance(one, item_types.CallItem))
    calling_cells = set(map(calling_cell, calls))
    history = ClientHistory(filter(None, map(_program, cells)))
    before: Item | None = None
    for item in items:
        match item:
            case item_types.ReasoningItem():
                history.add_reasoning(item.text)
                continue
            case item_types.CodeCallItem(status="incomplete") if item.key not in calling_cells:
                continue  # it did not run, or its end is another item
            case item_types.MessageItem():
                _add_message(item, before, history)
            case item_types.FunctionCallItem() | item_types.CustomCallItem():
                history.add_call(_call(item), item.program)
            case item_types.ProgramItem(call_id=key, code=code, fingerprint=fingerprint):
                key = program_of(key)
                history.add_program(HistoryProgram(id=key, code=code, fingerprint=fingerprint))
            case item_types.ProgramOutputItem(call_id=key, result=text, status=status):
                history.end_program(program_of(key), text, failed=status == "incomplete")
            case item_types.CallOutputItem():
                _add_result(item, history)
            case item_types.ApprovalResponseItem(reason=text, approve=approval):
                key = call_id(item.approval_request_id)
                history.add_result(
                    Message(role="tool", tool_call_id=key, content=text, approval=approval)
                )
            case item_types.CompactionItem() if summary := summary_of(item.encrypted_content):
                history.add_message(summary_message(summary))
            case item_types.CodeCallItem(status=status) if item.key not in calling_cells:
                cell = cell_history(item.code, _output(item), failed=status == "failed")
                history.add_cell(cell)
        before = item
    return history.messages


def _call(item: item_types.FunctionCallItem | item_types.CustomCallItem) -> HistoryCall:
    name, key = qualified(item.namespace, item.name), item.call_id
    if isinstance(item, item_types.CustomCallItem):
        custom = CustomCall(name=name, input=item.input)
        return HistoryCall(id=key, type="custom", custom=custom)
    function = FunctionCall(name=name, arguments=item.arguments)
    return HistoryCall(id=key, type="function", function=function, server_label=item.server)


_BEFORE_BREAK = (item_types.CodeCallItem, item_types.CallOutputItem)


def _add_message(item: item_types.MessageItem, before: Item | None, history: ClientHistory) -> None:
    """The rest of an answer, which the writer separated from its start by a web search that the model's
    history does not show, joins that start."""
    content = _content(item.role, item.content)
    if isinstance(content, str) and isinstance(before, _BEFORE_BREAK):
        # The writer inserted this separator; the model did not write it.
        content = content.removeprefix(MESSAGE_BREAK)
    message = Message(role=item.role, content=content)
    last = history.messages[-1] if history.messages else None
    is_rest = message.role == "assistant" and message.text.startswith(MESSAGE_BREAK)
    if is_rest and last and last.role == "assistant" and not last.tool_calls:
        words = {"content": f"{last.text}{message.text}"}
        history.messages[-1] = last.model_copy(update=words)
    else:
        history.add_message(message)


def _add_result(item: item_types.CallOutputItem, history: ClientHistory) -> None:
    key = item.call_id
    content = _content("tool", item.output)
    result = Message(role="tool", tool_call_id=key, content=content, is_error=item.is_error)
    if item.found is not None:
        if not any(call.id == key for m in history.messages for call in m.tool_calls or ()):
            return  # a search that ran at another server
        found = [name for tool in item.found for name in chat_names(tool)]
        result = result.model_copy(update={"found_tools": found})
    history.add_result(result)


def _program(cell: item_types.CodeCallItem) -> HistoryProgram | None:
    """A cell that ended with known outputs, as the program that makes its calls."""
    if cell.status == "incomplete" or cell.outputs is None:
        return None
    result, failed = _output(cell) or NO_OUTPUT, cell.status == "failed"
    return HistoryProgram(id=cell.key, code=cell.code, result=result, failed=failed)


def _output(cell: item_types.CodeCallItem) -> str:
    outputs = [IMAGE if one.type == "image" else one.logs for one in cell.outputs or ()]
    return "\n".join(output.rstrip("\n") for output in outputs)


def _content(role: str, parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Convert a message's content to chat's shape: plain text if it has only text, else a list of parts."""
    chat_parts = [_chat_part(part) for part in parts]
    texts = [part["text"] for part in chat_parts if part["type"] == "text"]
    if len(texts) == len(chat_parts) and (role == "assistant" or len(texts) < 2):
        return PARAGRAPH.join(filter(None, texts))
    return chat_parts


def _chat_part(part: Part) -> Json:
    match part:
        case item_types.TextPart(text=text) | item_types.RefusalPart(refusal=text):
            return {"type": "text", "text": text}
        case item_types.ImagePart(image_url=url, file_id=file_id, detail=detail):
            image = {"url": url} if url else {"file_id": file_id}
            return {
                "type": "image_url",
                "image_url": {**image, **({"detail": detail} if detail else {})},
            }
        case item_types.FilePart():
            file = part.model_dump(exclude={"type"}, exclude_none=True)
            return {"type": "file", "file": file}
