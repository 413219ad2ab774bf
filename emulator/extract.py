"""Split a reply, as it streams in, into reasoning, prose and blocks that may be a program.

Sans-IO: text in, events out; the events are the same for every way to cut the text (see
`events.merged`), and their `raw` joined gives back the reply. Of the tools it knows the names
alone. Whether a block is a program is for the readers and the pipeline to say; a block that is
none can be given back as prose, byte for byte.

Prose goes out at once; held back is only what may begin a block or a tag, `incoming.HOLD`
characters at most.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator

from emulator import blocks
from emulator.bare import Verdict
from emulator.blocks import After, Scanner
from emulator.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merged,
)
from emulator.incoming import HEAD, Incoming
from emulator.openings import FENCES, LINES, REASONING, fence_in, json_opens, tags_for
from emulator.written import WrittenNames

__all__ = [
    "BlockDelta",
    "BlockEnd",
    "BlockStart",
    "Event",
    "Reasoning",
    "Splitter",
    "Text",
    "merged",
    "split",
]

#: A longer run of backticks is decoration.
_RUN = 64
#: Where prose may stop being prose; `f` only where it may begin "functools[".
_POINT = re.compile(r"[\n`<\[{]|f(?=\Z|u(?:\Z|n(?:\Z|c)))")
_QUOTES = frozenset("`'\"“‘”’")

#: Yields events, or None for more text; returns the scanner that goes on, None for itself again.
_Prose = Generator[Event | None, None, Scanner | After | None]


class Splitter:
    """One reply. `names`: the offered functions, as Python names or written -> Python name.

    `reasoning_open`: the prompt's template has opened the reasoning already. After `close`,
    `unopened` says that a `</think>` came which nothing had opened: all text before it was
    reasoning (R1's templates do that), and the next reply of that model should be split with
    `reasoning_open`.
    """

    def __init__(self, names: Collection[str] = (), *, reasoning_open: bool = False) -> None:
        self._names = WrittenNames(names)
        self._tags = tags_for(names)
        # "<|end|>" ends other things as well; alone it says nothing of reasoning.
        closings = [closing for closing in REASONING.values() if closing != "<|end|>"]
        self._known = (*REASONING, *self._tags, *closings)
        self._heads = {tag[:2] for tag in self._known}
        self._longest = max(map(len, self._known))
        self._text = Incoming()
        self._inline = 0  # backticks that opened the code span we are in
        self._opened = reasoning_open
        self._events = self._reply(reasoning_open)
        self.unopened = False

    def feed(self, text: str) -> list[Event]:
        """What can be said now."""
        self._text.feed(text)
        return self._said()

    def close(self) -> list[Event]:
        """The rest; the reply has ended."""
        self._text.final = True
        return self._said()

    def _said(self) -> list[Event]:
        said: list[Event] = []
        for event in self._events:
            if event is None:
                break
            if event.raw or isinstance(event, (BlockStart, BlockEnd)):
                said.append(event)
        return merged(said)
