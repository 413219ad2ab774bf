"""Reading costs the same a character, however long a reply is and whatever stands in it.

Steps are counted, not seconds: lines of Python that run. What is copied, and what regular expressions do
inside, is for `make bench-reading` to time.
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
#: How much more a reply that is eight times as long may cost: 8 ** 1.1 is 9.8.
MOST = 12

INPUTS_AND_MORE = INPUTS | random_inputs(seed=13, count=8)


class Steps:
    """Lines of the project's own code that were run."""

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
    lines_run(chunks_of(reply_of(300, begin, again), 7))  # whatever is imported or cached
    short, long = (lines_run(chunks_of(reply_of(size, begin, again), 7)) for size in (SHORT, LONG))
    assert long <= MOST * short


def test_what_is_more_than_may_be_held_costs_no_more_than_what_is_held() -> None:
    """Brackets without an end are held as code, and given back as words when too much is held."""
    begin, again = INPUTS["bare brackets"]
    held, more = (lines_run(chunks_of(reply_of(n, begin, again), 1000)) for n in (66_000, 132_000))
    assert more <= 2.2 * held
