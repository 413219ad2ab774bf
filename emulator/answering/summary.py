"""Ask the model for a summary that replaces its conversation. Knows nothing of the fronts' shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import structlog

from emulator.core.errors import EmulatorError, ModelFailed
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    RefusalDelta,
    Summary,
    UpstreamAccepted,
    Usage,
)
from emulator.core.protocol import Message
from emulator.rendering.transcript import render
from emulator.upstream.usage_counter import total_usage

log = structlog.get_logger()


def question(instructions: str = "") -> Message:
    """The message that asks for the summary, at the end of the conversation, in the client's own words if it
    sent ``instructions``."""
    return Message(role="user", content=instructions.strip() or render("compact.jinja").strip())


def summarized(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Turn the answer into its `Summary`. Raises `EmulatorError`, also for an empty summary, which would
    erase the conversation."""
    text = ""
    for event in events:
        match event:
            case UpstreamAccepted():
                yield event
            case ContentDelta(delta) | RefusalDelta(delta):
                text += delta
            case Finish():
                if not text.strip():
                    raise ModelFailed("The model returned an empty summary.", code="model_empty")
                yield Summary(text.strip())
                yield event


def with_summary(
    events: Iterable[AnswerEvent],
    whole: Iterable[AnswerEvent],
    after: Callable[[str], Iterator[AnswerEvent]],
) -> Iterator[AnswerEvent]:
    """The summary, then the answer to what it replaces; or ``whole``, the answer without a summary, if none
    could be made.

    ``events`` are the answer that becomes the summary. Raises `EmulatorError`.
    """
    text, spent = "", Usage()
    try:
        for event in summarized(events):
            if isinstance(event, Finish):
                spent = event.usage
            else:
                yield event
                text = event.text if isinstance(event, Summary) else text
    except EmulatorError as error:
        log.warning("the conversation was not compacted", reason=error.message)
        yield from whole
        return
    for event in after(text):
        yield (
            replace(event, usage=total_usage([spent, event.usage]))
            if isinstance(event, Finish)
            else event
        )


def collected(events: Iterable[AnswerEvent]) -> tuple[str, Usage]:
    """Collect the summary from an answer. Raises as `summarized`."""
    text, usage = "", Usage()
    for event in summarized(events):
        match event:
            case Summary(summary):
                text = summary
            case Finish(usage=total):
                usage = total
    return text, usage
