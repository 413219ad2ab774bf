"""A chat completion, in order: what it asks for -> answers -> chunks. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.answering.answer_request import AnswerRequest
from emulator.answering.pipeline import Pipeline
from emulator.chat.chunks import ChunkWriter
from emulator.events import UpstreamAccepted
from emulator.upstream.interface import Chunk


def complete(
    pipeline: Pipeline, answer_request: AnswerRequest, host: str = ""
) -> Iterator[Chunk | list[Chunk] | UpstreamAccepted]:
    """The chunks of the answer, `UpstreamAccepted` before those of each reply of the upstream.

    Links to files begin with ``host``. Raises `EmulatorError` from the iterator.
    """
    request = answer_request.chat
    answers = (pipeline.answer(answer_request) for _ in range(answer_request.choice_count))
    writer = ChunkWriter(request.model, legacy=request.is_legacy, host=host)
    # A non-streaming answer always tells its usage.
    return writer.write(answers, include_usage=request.include_usage or not request.stream)
