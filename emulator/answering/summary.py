"""Summaries: the model is asked for one, and it replaces the conversation (`conversation.context`).

    a prompt within the threshold ──► the answer
    a longer one ──► question ──► summary ──► the answer to what it replaces, or none if the client pauses
                              └─► no summary could be made ──► the answer to the whole

The threshold is compared with what the model would be asked with; a program or cell that resumes asks
nothing. Knows nothing of the fronts' shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import structlog

from emulator.conversation.answer_request import AnswerRequest, PromptTooLong
from emulator.conversation.context import Summarize, is_replaced, within_context
from emulator.core.errors import BadRequest, EmulatorError, ModelFailed
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    RefusalDelta,
    Summary,
    UpstreamAccepted,
    Usage,
)
from emulator.core.protocol import ChatCompletionRequest, Message
from emulator.rendering.prompt import introduced
from emulator.rendering.transcript import render
from emulator.upstream.metering import estimate_tokens

log = structlog.get_logger()

_WORTH = 0.25
"""The part of the threshold that a summary must replace: it costs a model turn."""

Answer = Callable[[AnswerRequest], Iterator[AnswerEvent]]
Read = Callable[[ChatCompletionRequest], AnswerRequest]


def answer_in_context(
    answer: Answer, read: Read, chat: ChatCompletionRequest
) -> tuple[AnswerRequest, Iterator[AnswerEvent]]:
    """Read the request and answer it, after a summary if the client's rules ask for one. Raises as ``read``,
    and `BadRequest` without a threshold."""
    request = read(chat)
    rule = chat.context_rules.summary if chat.context_rules else None
    if rule is None:
        return request, answer(request)
    threshold = rule.threshold or within_context(rule.default, request.route.context_length)
    if not threshold:  # Responses has no default
        place = "context_management[0].compact_threshold"
        raise BadRequest(f"{place} is missing: the model's context is not known.", place)
    replaced = [m.shown.model_dump() for m in request.chat.messages if is_replaced(m)]
    if estimate_tokens(replaced) <= _WORTH * threshold:
        return request, answer(request)
    limited = replace(request, longest_prompt=threshold)
    return request, _answer_or_summarize(answer, read, chat, limited, rule)


def _answer_or_summarize(
    answer: Answer, read: Read, chat: ChatCompletionRequest, request: AnswerRequest, rule: Summarize
) -> Iterator[AnswerEvent]:
    try:
        yield from answer(request)
        return
    except PromptTooLong:
        pass
    text, spent = "", Usage()
    try:
        for event in summarized(answer(read(for_summary(chat, rule.instructions)))):
            match event:
                case Summary():
                    text = event.text
                case Finish():
                    spent = event.usage
                case _:
                    yield event
    except EmulatorError as error:
        log.warning("the conversation was not summarized", reason=error.message)
        yield from answer(replace(request, longest_prompt=0))
        return
    yield Summary(text, spent)
    if rule.pauses:
        yield Finish("stop", Usage())
    else:
        yield from answer(read(chat.with_messages([*chat.messages, summary_message(text)])))


def for_summary(chat: ChatCompletionRequest, instructions: str = "") -> ChatCompletionRequest:
    """The request for a summary of the conversation in ``chat``, in words and without tools. The question is
    the client's ``instructions``, if it sent some."""
    words = instructions.strip() or render("compact.jinja").strip()
    plain = {"tools": None, "tool_choice": "none", "response_format": None, "shows_programs": False}
    messages = [*chat.messages, Message(role="user", content=words)]
    return chat.model_copy(update={**plain, "messages": messages})


def summary_message(text: str) -> Message:
    """The summary as later prompts show it."""
    return Message(role="user", content=introduced(text)).model_copy(update={"is_summary": True})


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
