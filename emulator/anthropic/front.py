"""A message, in order: request -> chat -> answer -> stream. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emulator.answering.pipeline import Pipeline
from emulator.answering.relay import expand_relayed_chunks
from emulator.anthropic.request import (
    CountRequest,
    Json,
    MessagesRequest,
    chat_request,
    told_as_sent,
)
from emulator.anthropic.writer import MessageWriter
from emulator.errors import BadRequest
from emulator.events import UpstreamAccepted


@dataclass(frozen=True)
class Answer:
    """A message as it is made."""

    events: Iterator[Json | UpstreamAccepted]
    """Of the stream, `UpstreamAccepted` first. Raises `EmulatorError`."""
    dropped: tuple[str, ...]
    """Types of hosted tools that were left out."""


def answer(pipeline: Pipeline, request: MessagesRequest, client: str = "") -> Answer:
    """Raises `BadRequest`, `NotFound` at once."""
    try:
        answer_request = replace(
            pipeline.read(chat_request(request), client), finds_stop_string=True
        )
    except BadRequest as error:
        raise told_as_sent(error) from error
    writer = MessageWriter(request.model, thinks=request.thinks)
    events = writer.write(expand_relayed_chunks(answer_request, pipeline.answer(answer_request)))
    return Answer(events, answer_request.unsupported_tools)


def count_tokens(pipeline: Pipeline, request: CountRequest, client: str = "") -> int:
    """How many tokens the prompt has, tools included, as near as can be told without the model's tokenizer.

    Raises `BadRequest`, `NotFound`.
    """
    try:
        return pipeline.prompt_tokens(pipeline.read(chat_request(request), client))
    except BadRequest as error:
        raise told_as_sent(error) from error
