"""Items -> the messages of a chat. Knows nothing of the store or of what a request may hold."""

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

_PICTURE = "[a picture]"


def messages(items: Sequence[Item]) -> list[Message]:
    """What the items say, in order. Reasoning is not told: it was the model's own, of another turn.

    Calls become the ``tool_calls`` of the assistant message before them, as chat has them, so that a
    program finds the results of its calls (`resume.py`).
    """
    chat_messages: list[Message] = []
    before: Item | None = None
    for item in items:
        match item:
            case items_module.Message(role=role, content=parts):
                content = _content(role, parts)
                if isinstance(content, str) and isinstance(before, items_module.CodeCall):
                    # What parts it from the words before the code is not the model's.
                    content = content.removeprefix(items_module.MESSAGE_BREAK)
                chat_messages.append(Message(role=role, content=content))
            case items_module.FunctionCall(call_id=key, arguments=arguments):
                name = qualified(item.namespace, item.name)
                function = FunctionCall(name=name, arguments=arguments)
                _call(chat_messages, HistoryCall(id=key, function=function))
            case items_module.CustomCall(call_id=key, input=text):
                custom = CustomCall(name=qualified(item.namespace, item.name), input=text)
                _call(chat_messages, HistoryCall(id=key, custom=custom))
            case items_module.CallOutput(call_id=key, output=parts):
                chat_messages.append(
                    Message(role="tool", tool_call_id=key, content=_content("tool", parts))
                )
            case items_module.Compaction(encrypted_content=hidden):
                if (summary := summary_of(hidden)) is not None:
                    chat_messages.append(Message(role="user", content=summary))
            case items_module.CodeCall():
                chat_messages.extend(_cell(item))
        before = item
    return chat_messages


def _call(chat_messages: list[Message], call: HistoryCall) -> None:
    """Put a call where the other calls of its answer are.

    Clients send the items of an answer as they came, or each call with its output behind it.
    """
    at = len(chat_messages) - 1
    while at >= 0 and chat_messages[at].role == "tool":
        at -= 1
    behind = at == len(chat_messages) - 1
    if at >= 0 and chat_messages[at].role == "assistant":
        calls = chat_messages[at].tool_calls or []
        if behind or any(from_same_answer(call.id, other.id) for other in calls):
            chat_messages[at] = chat_messages[at].model_copy(update={"tool_calls": [*calls, call]})
            return
    chat_messages.append(Message(role="assistant", content=None, tool_calls=[call]))


def _cell(cell: items_module.CodeCall) -> Iterator[Message]:
    """A cell of the code interpreter, told as the model wrote it and as it was answered.

    One that waits for a call is not: the call is, and the cell when it has ended, as an item of its own.
    """
    if cell.status == "incomplete":
        return
    yield Message(role="assistant", content=f"```python\n{cell.code.rstrip()}\n```")
    outputs = [_PICTURE if one.type == "image" else one.logs for one in cell.outputs or ()]
    said = render(
        "ran.jinja",
        output="\n".join(output.rstrip("\n") for output in outputs),
        files=[],
        failed=cell.status == "failed",
    )
    yield Message(role="user", content=said)


def _content(role: str, parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """A message's content in chat's shape; plain text where it is no more than that."""
    chat_messages = [_chat_part(part) for part in parts]
    if role == "assistant" or len(chat_messages) < 2:
        texts = [part["text"] for part in chat_messages if part["type"] == "text"]
        if len(texts) == len(chat_messages):
            return "".join(texts)
    return chat_messages


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
