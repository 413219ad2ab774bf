"""Items -> the messages of a chat. Knows nothing of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.answering.cell_resume import NO_OUTPUT
from emulator.answering.prompt import cell_history
from emulator.events import calling_cell, from_same_answer
from emulator.hosted.hosted_tool import IMAGE
from emulator.protocol import CustomCall, FunctionCall, HistoryCall, HistoryProgram, Message
from emulator.responses import item_types
from emulator.responses.callers import program_of
from emulator.responses.compaction import summary_of, without_replaced
from emulator.responses.hosted_items import call_id
from emulator.responses.item_types import Item, Part
from emulator.responses.items import MESSAGE_BREAK, Json
from emulator.responses.tools import chat_names, qualified


def messages(items: Sequence[Item]) -> list[Message]:
    """Convert ``items``, in order. Only native models see the reasoning of earlier turns.

    Calls become ``tool_calls`` of the preceding assistant message, as in chat, so that a suspended program
    finds the results of its calls (`resume.py`).
    """
    items = without_replaced(items)
    chat = _Chat(items)
    before: Item | None = None
    for item in items:
        match item:
            case item_types.ReasoningItem():
                chat.add_reasoning(item.text)
                continue
            case item_types.MessageItem(role=role, content=parts):
                content = _content(role, parts)
                if isinstance(content, str) and isinstance(before, _BEFORE_BREAK):
                    # The writer inserted this separator; the model did not write it.
                    content = content.removeprefix(MESSAGE_BREAK)
                chat.add_message(Message(role=role, content=content))
            case item_types.FunctionCallItem(call_id=key, server=server):
                name = qualified(item.namespace, item.name)
                function = FunctionCall(name=name, arguments=item.arguments)
                call = HistoryCall(id=key, type="function", function=function, server_label=server)
                chat.add_call(call, item.program)
            case item_types.CustomCallItem(call_id=key, input=text):
                custom = CustomCall(name=qualified(item.namespace, item.name), input=text)
                chat.add_call(HistoryCall(id=key, type="custom", custom=custom), item.program)
            case item_types.ProgramItem() | item_types.ProgramOutputItem():
                chat.add_program(item)
            case item_types.CallOutputItem():
                chat.add_result(item)
            case item_types.ApprovalResponseItem():
                chat.add_decision(item)
            case item_types.CompactionItem(encrypted_content=hidden):
                chat.add_summary(summary_of(hidden))
            case item_types.CodeCallItem():
                chat.add_cell(item)
        before = item
    return chat.with_reasoning()


_BEFORE_BREAK = (item_types.CodeCallItem, item_types.CallOutputItem)


class _Chat:
    """The messages so far."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.messages: list[Message] = []
        self._hosted_calls: set[str] = set()
        self._results: dict[str, int] = {}
        """Call id -> the place of its result, or of the client's decision about it."""
        calls = (i.call_id for i in items if isinstance(i, item_types.CallItem))
        self._calling_cells = set(map(calling_cell, calls))
        cells = (one for one in items if isinstance(one, item_types.CodeCallItem))
        self._programs = {cell.key: program for cell in cells if (program := _program(cell))}
        """The programs and cells without a call so far, by id."""
        self._places: dict[str, int] = {}
        """The id of a program or cell -> the place of the message with its first call."""
        self._reasoning: dict[int, str] = {}
        """The place of an answer -> the reasoning before it."""

    def add_summary(self, summary: str | None) -> None:
        if summary is not None:
            self.messages.append(Message(role="user", content=summary))

    def add_reasoning(self, text: str) -> None:
        at = len(self.messages)
        self._reasoning[at] = "\n".join(filter(None, (self._reasoning.get(at), text)))

    def with_reasoning(self) -> list[Message]:
        for at, text in self._reasoning.items():
            if at < len(self.messages) and self.messages[at].role == "assistant" and text:
                self._change(at, reasoning=text)
        return self.messages

    def add_program(self, item: item_types.ProgramItem | item_types.ProgramOutputItem) -> None:
        """Add a program to the message that will have its first call, or its end to that message."""
        key = program_of(item.call_id)
        if isinstance(item, item_types.ProgramItem):
            program = HistoryProgram(id=key, code=item.code, fingerprint=item.fingerprint)
            self._programs[key] = program
        elif (at := self._places.get(key)) is not None and (shown := self.messages[at].program):
            end = {"result": item.result, "failed": item.status == "incomplete"}
            self._change(at, program=shown.model_copy(update=end))

    def add_cell(self, cell: item_types.CodeCallItem) -> None:
        """Add a cell with its output, unless the message with its first call has them.

        A cell that waits for a call is skipped: its call is shown, and the ended cell is another item.
        """
        if cell.status != "incomplete" and cell.key not in self._calling_cells:
            self.messages += cell_history(cell.code, _output(cell), failed=cell.status == "failed")

    def add_message(self, message: Message) -> None:
        """Add a message; the rest of an answer, which the writer separated from its start by a web search
        that the model's history does not show, joins that start."""
        last = self.messages[-1] if self.messages else None
        is_rest = message.role == "assistant" and message.text.startswith(MESSAGE_BREAK)
        if is_rest and last and last.role == "assistant" and not last.tool_calls:
            self._change(-1, content=f"{last.text}{message.text}")
        else:
            self.messages.append(message)

    def add_call(self, call: HistoryCall, caller: str | None = None) -> None:
        """Add a call to the message that holds the other calls of its answer.

        Clients send the items of an answer in their original order, or each call followed by its output. A
        hosted call may be in two items: the approval request, and the call that ran.
        """
        cell = calling_cell(call.id)
        if caller is None and (cell in self._programs or cell in self._places):
            caller = cell
        call = call.model_copy(update={"caller": caller})
        if call.server_label is not None:
            if call.id in self._hosted_calls:
                return
            self._hosted_calls.add(call.id)
        last = self.messages[-1] if self.messages else None
        words = last if last and last.role == "assistant" and not last.tool_calls else None
        at = self._place_of_calls(len(self.messages) - (2 if words else 1))
        others = self.messages[at].tool_calls or [] if at >= 0 else []
        if any(from_same_answer(call.id, other.id) for other in others):
            if words:  # between two calls of its answer
                self.messages.pop()
                self._change(at, content=f"{self.messages[at].text}{words.text}")
            self._change(at, tool_calls=[*others, call])
        elif last and last.role == "assistant":
            at = len(self.messages) - 1
            self._change(at, tool_calls=[*(last.tool_calls or ()), call])
        else:
            at = len(self.messages)
            self.messages.append(Message(role="assistant", content=None, tool_calls=[call]))
        if caller in self._programs:
            self._places[caller] = at
            self._change(at, program=self._programs.pop(caller))

    def _place_of_calls(self, end: int) -> int:
        """The place of the message whose results end the messages up to ``end``; -1 if there is none."""
        while end >= 0 and self.messages[end].role == "tool":
            end -= 1
        return end

    def _change(self, at: int, **changes: Any) -> None:
        self.messages[at] = self.messages[at].model_copy(update=changes)

    def add_result(self, item: item_types.CallOutputItem) -> None:
        """Add a call's result, at the place of the client's decision if the call waited for it."""
        key = item.call_id
        content = _content("tool", item.output)
        result = Message(role="tool", tool_call_id=key, content=content, is_error=item.is_error)
        if item.found is not None:
            if not any(call.id == key for m in self.messages for call in m.tool_calls or ()):
                return  # a search that ran at another server
            found = [name for tool in item.found for name in chat_names(tool)]
            result = result.model_copy(update={"found_tools": found})
        at = self._results.setdefault(key, len(self.messages))
        if at < len(self.messages) and self.messages[at].approval is not None:
            self.messages[at] = result
        else:
            self.messages.append(result)

    def add_decision(self, item: item_types.ApprovalResponseItem) -> None:
        """Add the client's decision about a hosted call. The first one counts."""
        key = call_id(item.approval_request_id)
        if key not in self._results:
            self._results[key] = len(self.messages)
            self.messages.append(
                Message(role="tool", tool_call_id=key, content=item.reason, approval=item.approve)
            )


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
    if role == "assistant" or len(chat_parts) < 2:
        texts = [part["text"] for part in chat_parts if part["type"] == "text"]
        if len(texts) == len(chat_parts):
            return "".join(texts)
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
