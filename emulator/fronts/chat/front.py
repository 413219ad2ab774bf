"""Answer a chat completion request: request -> answers -> chunks. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.answering.pipeline import Pipeline
from emulator.conversation.answer_request import AnswerRequest
from emulator.core.events import UpstreamAccepted
from emulator.fronts.chat.chunks import ChunkWriter
from emulator.upstream.interface import Chunk


def complete(
    pipeline: Pipeline, answer_request: AnswerRequest, origin: str = ""
) -> Iterator[Chunk | list[Chunk] | UpstreamAccepted]:
    """Return the chunks of the answer; `UpstreamAccepted` precedes the chunks of each upstream reply.

    Links to files start with ``origin`` (``https://origin:port``). The iterator raises `EmulatorError`.
    """
    request = answer_request.chat
    answers = (pipeline.answer(answer_request) for _ in range(answer_request.choice_count))
    writer = ChunkWriter(
        request.model,
        legacy=request.is_legacy,
        origin=origin,
        usage_later=bool(request.stream and request.include_usage),
    )
    # A plain answer always includes its usage.
    return writer.write(answers, include_usage=request.include_usage or not request.stream)
