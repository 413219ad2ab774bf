"""Answer a Messages request: request -> chat request -> answer -> stream. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emulator.answering.pipeline import Pipeline
from emulator.answering.relay import expand_relayed_chunks
from emulator.anthropic.request import (
    CountRequest,
    Json,
    MessagesRequest,
    at_client_place,
    chat_request,
)
from emulator.anthropic.writer import MessageWriter
from emulator.errors import BadRequest
from emulator.events import UpstreamAccepted


@dataclass(frozen=True)
class MessageStream:
    """The stream of one message."""

    events: Iterator[Json | UpstreamAccepted]
    """The stream's events, `UpstreamAccepted` first. The iterator raises `EmulatorError`."""
    unsupported_tools: tuple[str, ...]
    """The types of hosted tools that were removed from the request."""


def answer(pipeline: Pipeline, request: MessagesRequest, client: str = "") -> MessageStream:
    """Read the request and start its answer. Raises `BadRequest` or `NotFound` before the first event."""
    try:
        answer_request = replace(
            pipeline.read(chat_request(request), client), finds_stop_string=True
        )
    except BadRequest as error:
        raise at_client_place(error) from error
    writer = MessageWriter(request.model, thinks=request.thinks)
    events = writer.write(expand_relayed_chunks(answer_request, pipeline.answer(answer_request)))
    return MessageStream(events, answer_request.unsupported_tools)


def count_tokens(pipeline: Pipeline, request: CountRequest, client: str = "") -> int:
    """Estimate the tokens of the prompt, including the tools, without the model's tokenizer.

    Raises `BadRequest` or `NotFound`.
    """
    try:
        return pipeline.prompt_tokens(pipeline.read(chat_request(request), client))
    except BadRequest as error:
        raise at_client_place(error) from error
