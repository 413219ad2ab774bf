"""The interface of scanners: the events that a reply consists of, verdicts on incomplete text, positions.

Each event carries the exact characters that it represents.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True)
class Reasoning:
    """The model's reasoning. `raw` includes the tags; a tag alone has an empty `text`."""

    text: str
    raw: str


@dataclass(frozen=True)
class Text:
    """Prose that the user reads."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True)
class BlockStart:
    """A block begins. `dialect` is a key of `readers.READERS`; `raw` is the opening fence or tag."""

    dialect: str
    raw: str


@dataclass(frozen=True)
class BlockDelta:
    """Part of a block: `text` for the reader, without the indentation of its fence; `raw` as the
    model wrote it.
    """

    text: str
    raw: str


@dataclass(frozen=True)
class BlockEnd:
    """A block ends. `closed` is False if the reply ended inside the block.

    `at_reply_end`: only the end of the reply ended the block. If a token limit cut the reply there,
    the block may be incomplete even if it looks complete, because it has no closing mark of its
    own.
    """

    raw: str
    closed: bool
    at_reply_end: bool = False


Event = Reasoning | Text | BlockStart | BlockDelta | BlockEnd


def merge_events(events: Iterable[Event]) -> list[Event]:
    """Join adjacent events of the same kind. The result is the same however the reply was cut."""
    out: list[Event] = []
    for event in events:
        match (out[-1] if out else None), event:
            case Text(before), Text(text):
                out[-1] = Text(before + text)
            case Reasoning(before, raw_before), Reasoning(text, raw):
                out[-1] = Reasoning(before + text, raw_before + raw)
            case BlockDelta(before, raw_before), BlockDelta(text, raw):
                out[-1] = BlockDelta(before + text, raw_before + raw)
            case _:
                out.append(event)
    return out


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
"""Finds where a block ends: takes text from the `TextBuffer` and yields events, or None when it needs more
text. Returns the position at which the splitter continues. Its decisions depend only on the text, never on
where the text was cut."""
