"""A chat completion, in order: request -> what it asks for -> answers -> chunks. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.answering.pipeline import Pipeline
from emulator.chat.chunks import ChunkWriter
from emulator.events import Opened
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Order
from emulator.upstream.interface import Chunk


def complete(
    pipeline: Pipeline,
    request: ChatCompletionRequest,
    client: str = "",
    host: str = "",
    order: Order | None = None,
) -> Iterator[Chunk | Opened]:
    """The chunks of the answer, `Opened` before those of each reply of the upstream.

    Links to files begin with ``host``. Raises `BadRequest` at once, `EmulatorError` from the iterator.
    """
    asked = pipeline.read(request, client, interpreter_by_default=True, order=order)
    answers = (pipeline.answer(asked) for _ in range(asked.answers))
    writer = ChunkWriter(request.model, legacy=request.is_legacy, host=host)
    # A non-streaming answer always tells its usage.
    return writer.write(answers, include_usage=request.include_usage or not request.stream)
