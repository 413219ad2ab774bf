"""What scanners are: generators that find where a block ends.

A scanner takes from the incoming text and yields events, or None when it needs more text; it
returns where in the prose the splitter stands then. Whatever it decides depends on the text
alone, never on where it was cut.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto

from emulator.reading.events import Event


class After(Enum):
    """Where in the prose the splitter stands after a block."""

    LINE = auto()  # at the beginning of a line, or of something like one
    LINE_NOT_CODE = auto()  # ... of which is known that it is no code
    PROSE = auto()  # within a line


Scanner = Generator[Event | None, None, After]
