"""Items -> the messages of a chat. Knows nothing of the store or of what a request may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from emulator.answering.transcript import render
from emulator.events import same_answer
from emulator.protocol import CustomCall, FunctionCall, HistoryCall, Message
from emulator.responses import items as given
from emulator.responses.compaction import summary_of
from emulator.responses.items import Item, Json, Part
from emulator.responses.tools import qualified

_PICTURE = "[a picture]"


def messages(items: Sequence[Item]) -> list[Message]:
    """What the items say, in order. Reasoning is not told: it was the model's own, of another turn.

    Calls become the ``tool_calls`` of the assistant message before them, as chat has them, so that a
    program finds the results of its calls (`resume.py`).
    """
    told: list[Message] = []
    for item in items:
        match item:
            case given.Message(role=role, content=parts):
                told.append(Message(role=role, content=_content(role, parts)))
            case given.FunctionCall(call_id=key, arguments=arguments):
                name = qualified(item.namespace, item.name)
                function = FunctionCall(name=name, arguments=arguments)
                _call(told, HistoryCall(id=key, function=function))
            case given.CustomCall(call_id=key, input=text):
                custom = CustomCall(name=qualified(item.namespace, item.name), input=text)
                _call(told, HistoryCall(id=key, custom=custom))
            case given.CallOutput(call_id=key, output=parts):
                told.append(Message(role="tool", tool_call_id=key, content=_content("tool", parts)))
            case given.Compaction(encrypted_content=hidden):
                if (summary := summary_of(hidden)) is not None:
                    told.append(Message(role="user", content=summary))
            case given.CodeCall():
                told.extend(_cell(item))
    return told


def _call(told: list[Message], call: HistoryCall) -> None:
    """Put a call where the other calls of its answer are.

    Clients send the items of an answer as they came, or each call with its output behind it.
    """
    at = len(told) - 1
    while at >= 0 and told[at].role == "tool":
        at -= 1
    behind = at == len(told) - 1
    if at >= 0 and told[at].role == "assistant":
        calls = told[at].tool_calls or []
        if behind or any(same_answer(call.id, other.id) for other in calls):
            told[at] = told[at].model_copy(update={"tool_calls": [*calls, call]})
            return
    told.append(Message(role="assistant", content=None, tool_calls=[call]))


def _cell(cell: given.CodeCall) -> Iterator[Message]:
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
    told = [_chat_part(part) for part in parts]
    if role == "assistant" or len(told) < 2:
        texts = [part["text"] for part in told if part["type"] == "text"]
        if len(texts) == len(told):
            return "".join(texts)
    return told


def _chat_part(part: Part) -> Json:
    match part:
        case given.TextPart(text=text) | given.RefusalPart(refusal=text):
            return {"type": "text", "text": text}
        case given.ImagePart(image_url=url, detail=detail):
            image = {"url": url, "detail": detail} if detail else {"url": url}
            return {"type": "image_url", "image_url": image}
        case given.FilePart():
            file = part.model_dump(exclude={"type"}, exclude_none=True)
            return {"type": "file", "file": file}
