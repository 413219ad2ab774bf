"""The cost of reading per character is constant, for any length and any content of a reply.

The tests count executed lines of Python instead of seconds. `make bench-reading` times the rest: copying,
and the work inside regular expressions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from benchmarks.reading import INPUTS, chunks_of, random_inputs, read, reply_of

SHORT, LONG = 500, 4_000
#: The limit of the cost of a reply that is eight times as long: 8 ** 1.1 is 9.8.
MOST = 12

INPUTS_AND_MORE = INPUTS | random_inputs(seed=13, count=8)


class Steps:
    """Counts executed lines of the project's own code."""

    def __init__(self) -> None:
        self.lines = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and "emulator" not in frame.f_code.co_filename:
            return None
        self.lines += event == "line"
        return self.trace


@contextmanager
def counted() -> Iterator[Steps]:
    steps, before = Steps(), sys.gettrace()
    sys.settrace(steps.trace)
    try:
        yield steps
    finally:
        sys.settrace(before)


def lines_run(chunks: Sequence[str]) -> int:
    with counted() as steps:
        read(chunks)
    return steps.lines


every_input = pytest.mark.parametrize("name", INPUTS_AND_MORE)


@every_input
def test_the_steps_grow_with_the_length_and_no_faster(name: str) -> None:
    begin, again = INPUTS_AND_MORE[name]
    lines_run(chunks_of(reply_of(300, begin, again), 7))  # fill caches, import modules
    short, long = (lines_run(chunks_of(reply_of(size, begin, again), 7)) for size in (SHORT, LONG))
    assert long <= MOST * short


def test_text_beyond_the_buffer_limit_costs_no_more_than_buffered_text() -> None:
    """Unclosed brackets are buffered as code, and become prose beyond the limit."""
    begin, again = INPUTS["bare brackets"]
    buffered, longer = (
        lines_run(chunks_of(reply_of(n, begin, again), 1000)) for n in (66_000, 132_000)
    )
    assert longer <= 2.2 * buffered
