"""What scanners are: generators that find where a block ends.

A scanner takes from the incoming text and yields events, or None when it needs more text; it
returns where in the prose the splitter stands then. Whatever it decides depends on the text
alone, never on where it was cut.
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
    YES = auto()


class Position(Enum):
    """Where in the prose the splitter continues after a block."""

    LINE_START = auto()
    LINE_START_NOT_CODE = auto()
    """At the beginning of a line that is known not to be code."""
    MID_LINE = auto()


Scanner = Generator[Event | None, None, Position]
