"""Replace a conversation with a summary: ``/responses/compact`` returns it, and a later request sends it
back.

The summary's item is opaque to clients but not secret: it contains only text that the client may read, and a
client that changes it could have sent the same text as a message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence

from emulator.answering.transcript import render
from emulator.errors import ModelFailed
from emulator.events import AnswerEvent, ContentDelta, Finish, Usage, new_id
from emulator.protocol import Message
from emulator.responses.items import Json

_MARK = "summary:"
_INTRODUCTION = "Summary of the conversation so far:\n\n"


def question() -> Message:
    """The message that asks the model for the summary, at the end of the conversation."""
    return Message(role="user", content=render("compact.jinja").strip())


def collected(events: Iterable[AnswerEvent]) -> tuple[str, Usage]:
    """Collect the summary from an answer. Raises `EmulatorError`, also for an empty summary, which would
    erase the conversation."""
    text, usage = "", Usage()
    for event in events:
        match event:
            case ContentDelta(delta):
                text += delta
            case Finish(usage=total):
                usage = total
    if not text.strip():
        raise ModelFailed("The model returned an empty summary.", code="model_empty")
    return text.strip(), usage


def compacted(items: Sequence[Json], summary: str) -> list[Json]:
    """Return the output: the user's messages, and one item that summarizes all other items."""
    questions = [item for item in items if item["type"] == "message" and item.get("role") == "user"]
    hidden = base64.b64encode(f"{_MARK}{summary}".encode()).decode()
    return [*questions, {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": hidden}]


def summary_of(hidden: str) -> str | None:
    """Return the text for the model from a ``compaction`` item; None if the item was not made by
    `compacted`."""
    try:
        text = base64.b64decode(hidden, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return _INTRODUCTION + text.removeprefix(_MARK) if text.startswith(_MARK) else None
