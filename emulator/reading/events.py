"""What a reply is made of. Every event carries the exact characters it stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reasoning:
    """Thinking aloud. `raw` includes the tags; a tag alone has an empty `text`."""

    text: str
    raw: str


@dataclass(frozen=True)
class Text:
    """Prose, for the caller's eyes."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True)
class BlockStart:
    """A block begins. `dialect` is a key of `readers.READERS`; `raw` what opened it (a fence)."""

    dialect: str
    raw: str


@dataclass(frozen=True)
class BlockDelta:
    """Some of the block: `text` for the reader, dedented like its fence; `raw` as written."""

    text: str
    raw: str


@dataclass(frozen=True)
class BlockEnd:
    """The block ends. `closed` is False where the reply ended inside it.

    `at_reply_end`: nothing but the end of the reply has ended it. Where that end was a cut, the block
    was cut too, however whole it may look: what has no closing of its own might have gone on.
    """

    raw: str
    closed: bool
    at_reply_end: bool = False


Event = Reasoning | Text | BlockStart | BlockDelta | BlockEnd


def merge_events(events: Iterable[Event]) -> list[Event]:
    """`events` with neighbours of a kind joined: the same for every way to cut a reply."""
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
