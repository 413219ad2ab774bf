"""Ask the model for a summary that replaces its conversation. Knows nothing of the fronts' shapes."""

from __future__ import annotations

from collections.abc import Iterable

from emulator.answering.transcript import render
from emulator.errors import ModelFailed
from emulator.events import AnswerEvent, ContentDelta, Finish, Usage
from emulator.protocol import Message


def question(instructions: str = "") -> Message:
    """The message that asks for the summary, at the end of the conversation, in the client's own words if it
    sent ``instructions``."""
    return Message(role="user", content=instructions.strip() or render("compact.jinja").strip())


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


def introduced(summary: str) -> str:
    """The summary as a later prompt shows it."""
    return f"Summary of the conversation so far:\n\n{summary}"
