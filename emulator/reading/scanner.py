"""The interface of scanners: generators that find where a block ends.

A scanner takes text from the `TextBuffer` and yields events, or None when it needs more text. It
returns the position at which the splitter continues. Its decisions depend only on the text, never
on where the text was cut.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto

from emulator.reading.events import Event


class Verdict(Enum):
    """The answer of a test of text that may still be incomplete."""

    NO = auto()
    MAYBE = auto()
    """More text decides."""
    UNSURE = auto()
    """JSON that begins like a call; its end, or the text after it, decides."""
    YES = auto()


class Position(Enum):
    """Where the splitter continues after a block."""

    LINE_START = auto()
    LINE_START_NOT_CODE = auto()
    """At the beginning of a line that is known not to be code."""
    MID_LINE = auto()


Scanner = Generator[Event | None, None, Position]
