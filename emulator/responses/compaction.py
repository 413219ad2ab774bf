"""A conversation as a summary of it: what ``/responses/compact`` gives, and a later request brings back.

The summary's item is opaque to clients, not secret: it holds only what they may read anyway, and what they
change in it they could have said themselves.
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
_TOLD = "What was said before, in summary:\n\n"


def question() -> Message:
    """What asks the model for the summary, behind the conversation."""
    return Message(role="user", content=render("compact.jinja").strip())


def collected(events: Iterable[AnswerEvent]) -> tuple[str, Usage]:
    """The summary that an answer is. Raises `EmulatorError`, also for an answer that says nothing: it would
    take the place of all that was said."""
    text, usage = "", Usage()
    for event in events:
        match event:
            case ContentDelta(words):
                text += words
            case Finish(usage=counted):
                usage = counted
    if not text.strip():
        raise ModelFailed("The model gave an empty summary.", code="model_empty")
    return text.strip(), usage


def compacted(given: Sequence[Json], summary: str) -> list[Json]:
    """The output: what the user said, and one item for all the rest."""
    asked = [item for item in given if item["type"] == "message" and item.get("role") == "user"]
    hidden = base64.b64encode(f"{_MARK}{summary}".encode()).decode()
    return [*asked, {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": hidden}]


def summary_of(hidden: str) -> str | None:
    """What the content of a ``compaction`` item of ours tells the model; None of one made elsewhere."""
    try:
        text = base64.b64decode(hidden, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return _TOLD + text.removeprefix(_MARK) if text.startswith(_MARK) else None
