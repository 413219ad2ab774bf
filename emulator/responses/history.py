"""Items -> the messages of a chat. Knows nothing of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from emulator.answering.transcript import render
from emulator.events import from_same_answer
from emulator.protocol import CustomCall, FunctionCall, HistoryCall, Message
from emulator.responses import items as items_module
from emulator.responses.compaction import summary_of
from emulator.responses.items import Item, Json, Part
from emulator.responses.tools import qualified

_IMAGE = "[an image]"


def messages(items: Sequence[Item]) -> list[Message]:
    """Convert ``items``, in order. Reasoning is skipped: models do not see the reasoning of earlier turns.

    Calls become ``tool_calls`` of the preceding assistant message, as in chat, so that a suspended program
    finds the results of its calls (`resume.py`).
    """
    chat_messages: list[Message] = []
    before: Item | None = None
    for item in items:
        match item:
            case items_module.MessageItem(role=role, content=parts):
                content = _content(role, parts)
                if isinstance(content, str) and isinstance(before, items_module.CodeCallItem):
                    # The writer inserted this separator after the cell; the model did not write it.
                    content = content.removeprefix(items_module.MESSAGE_BREAK)
                chat_messages.append(Message(role=role, content=content))
            case items_module.FunctionCallItem(call_id=key, arguments=arguments):
                name = qualified(item.namespace, item.name)
                function = FunctionCall(name=name, arguments=arguments)
                _call(chat_messages, HistoryCall(id=key, function=function))
            case items_module.CustomCallItem(call_id=key, input=text):
                custom = CustomCall(name=qualified(item.namespace, item.name), input=text)
                _call(chat_messages, HistoryCall(id=key, custom=custom))
            case items_module.CallOutputItem(call_id=key, output=parts):
                chat_messages.append(
                    Message(
                        role="tool",
                        tool_call_id=key,
                        content=_content("tool", parts),
                        is_error=item.is_error,
                    )
                )
            case items_module.CompactionItem(encrypted_content=hidden):
                if (summary := summary_of(hidden)) is not None:
                    chat_messages.append(Message(role="user", content=summary))
            case items_module.CodeCallItem():
                chat_messages.extend(_cell(item))
        before = item
    return chat_messages


def _call(chat_messages: list[Message], call: HistoryCall) -> None:
    """Add a call to the message that holds the other calls of its answer.

    Clients send the items of an answer in their original order, or each call followed by its output.
    """
    at = len(chat_messages) - 1
    while at >= 0 and chat_messages[at].role == "tool":
        at -= 1
    is_last = at == len(chat_messages) - 1
    if at >= 0 and chat_messages[at].role == "assistant":
        calls = chat_messages[at].tool_calls or []
        if is_last or any(from_same_answer(call.id, other.id) for other in calls):
            chat_messages[at] = chat_messages[at].model_copy(update={"tool_calls": [*calls, call]})
            return
    chat_messages.append(Message(role="assistant", content=None, tool_calls=[call]))


def _cell(cell: items_module.CodeCallItem) -> Iterator[Message]:
    """A cell of the code interpreter: the model's code block, and a user message with its output.

    A cell that waits for a call is skipped: its call is shown, and the ended cell is another item.
    """
    if cell.status == "incomplete":
        return
    yield Message(role="assistant", content=f"```python\n{cell.code.rstrip()}\n```")
    outputs = [_IMAGE if one.type == "image" else one.logs for one in cell.outputs or ()]
    result = render(
        "cell_output.jinja",
        output="\n".join(output.rstrip("\n") for output in outputs),
        files=[],
        failed=cell.status == "failed",
    )
    yield Message(role="user", content=result)


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
        case items_module.TextPart(text=text) | items_module.RefusalPart(refusal=text):
            return {"type": "text", "text": text}
        case items_module.ImagePart(image_url=url, file_id=file_id, detail=detail):
            image = {"url": url} if url else {"file_id": file_id}
            return {
                "type": "image_url",
                "image_url": {**image, **({"detail": detail} if detail else {})},
            }
        case items_module.FilePart():
            file = part.model_dump(exclude={"type"}, exclude_none=True)
            return {"type": "file", "file": file}
