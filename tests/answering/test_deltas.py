"""How the chunks of a reply become deltas, and which chunks are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import pytest

from emulator.conversation.profiles import Profile
from emulator.core.errors import UpstreamFailed
from emulator.reply.deltas import ReplyDelta, read_deltas
from emulator.upstream.interface import Chunk
from emulator.upstream.usage_counter import UsageCounter


class _Reply:
    """Chunks as they came: those of one list together; behind the last, perhaps, something else."""

    headers: dict[str, str] = {}  # noqa: RUF012 - nothing changes it
    more_arrived = False

    def __init__(self, *come: Sequence[Chunk], then: Exception | str = "") -> None:
        self._come = come
        self._then = then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def __iter__(self) -> Iterator[Chunk]:
        for together in self._come:
            for place, chunk in enumerate(together):
                self.more_arrived = place < len(together) - 1 or bool(self._then)
                yield chunk
        if isinstance(self._then, Exception):
            raise self._then


def _chunk(finish_reason: str | None = None, **delta: Any) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _read(reply: _Reply) -> Iterator[ReplyDelta]:
    return read_deltas(reply, Profile("any", ""), UsageCounter(), [])


SAY_A, SAY_B = _chunk(content="a"), _chunk(content="b")
THINK = _chunk(reasoning_content="hm")
USAGE: Chunk = {"choices": [], "usage": {"completion_tokens": 2}}


@pytest.mark.parametrize(
    ("come", "read"),
    [
        pytest.param(
            [[SAY_A, SAY_B]], [ReplyDelta("", "ab")], id="words that came together are one"
        ),
        pytest.param(
            [[SAY_A], [SAY_B]],
            [ReplyDelta("", "a"), ReplyDelta("", "b")],
            id="what has come does not wait",
        ),
        pytest.param(
            [[THINK, THINK, SAY_A]],
            [ReplyDelta("hmhm", "a")],
            id="words follow the reasoning",
        ),
        pytest.param(
            [[SAY_A, THINK]],
            [ReplyDelta("", "a"), ReplyDelta("hm", "")],
            id="reasoning after words follows them",
        ),
        pytest.param(
            [[SAY_A, SAY_B, _chunk("stop"), USAGE]],
            [ReplyDelta("", "ab"), ReplyDelta("", "", "stop")],
            id="the end follows the words",
        ),
        pytest.param(
            [[SAY_A, _chunk("length", content="b")]],
            [ReplyDelta("", "a"), ReplyDelta("", "b", "length")],
            id="a chunk that ends the reply is a delta of its own",
        ),
        pytest.param(
            [[_chunk(role="assistant"), SAY_A, USAGE]],
            [ReplyDelta("", "a")],
            id="the usage that ends a piece holds nothing back",
        ),
    ],
)
def test_chunks_that_arrived_together_are_merged(
    come: list[list[Chunk]], read: list[ReplyDelta]
) -> None:
    assert list(_read(_Reply(*come))) == read


def test_chunks_before_a_failure_are_read_before_it_is_raised() -> None:
    """A call that was complete before the failure is sent."""
    read = _read(_Reply([SAY_A, SAY_B], then=UpstreamFailed("broken off")))
    assert next(read) == ReplyDelta("", "ab")
    with pytest.raises(UpstreamFailed):
        next(read)


def test_chunks_before_two_done_events_are_not_lost() -> None:
    """Of two [DONE] the first looked like a chunk that was still to follow."""
    assert list(_read(_Reply([SAY_A, SAY_B], then="[DONE]"))) == [ReplyDelta("", "ab")]
