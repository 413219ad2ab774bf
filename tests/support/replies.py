"""The replies of tests/replies/*.md: what models write, and how it must be read.

A case is `## a sentence`, optional settings, the reply between two rows of `%%%%`, then one line for
each expected item:

    text "..."            prose (JSON string)
    reasoning "..."       reasoning, without its tags
    python                a block; `python unclosed` where the reply ended inside it
      1| f(a=1)           ... a statement and the line of the block where it begins
       | ...              ... its further lines
      !| line 2: message  ... what is wrong with the block

The reply ends before the newline in front of the closing row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from emulator.reading.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merge_events,
)
from emulator.reading.readers import READERS, Statement, Unreadable
from emulator.reading.splitter import Splitter

#: Written name -> Python name of the tools offered with every reply.
NAMES = {
    name: re.sub(r"\W", "_", name)
    for name in (
        "get_weather get_time search send_email calculate create_event math.lcm get-stock-price "
        "sentiment_analysis parse_json"
    ).split()
}

FOLDER = Path(__file__).parents[1] / "replies"

_CASE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<settings>(?:[a-z_]+: [^\n]*\n)*)"
    r"%%%%\n(?P<reply>.*?)\n?%%%%\n(?P<expected>(?:(?!## )[^\n]*\n)*)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Case:
    """One reply and the lines that describe how it must be read."""

    title: str
    reply: str
    expected: tuple[str, ...]
    reasoning_open: bool = False


def cases() -> Iterator[Case]:
    """All cases of all files, titled by file and sentence."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_bytes().decode()  # not read_text(): some replies have Windows line ends
        found = list(_CASE.finditer(text))
        assert len(found) == len(re.findall(r"^## ", text, re.MULTILINE)), path
        for match in found:
            yield Case(
                f"{path.stem}: {match['title']}",
                match["reply"],
                tuple(line for line in match["expected"].splitlines() if line.strip()),
                "reasoning_open: true" in match["settings"],
            )


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    """`text`, cut at `cuts`."""
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


def split_pieces(
    reply: str,
    cuts: Sequence[int] = (),
    names: Collection[str] = NAMES,
    *,
    reasoning_open: bool = False,
) -> list[Event]:
    """The splitter's events for a reply that arrives cut at `cuts`."""
    splitter = Splitter(names, reasoning_open=reasoning_open)
    found = [event for piece in pieces(reply, cuts) for event in splitter.feed(piece)]
    return [*found, *splitter.close()]


def events(case: Case, cuts: Sequence[int] = ()) -> list[Event]:
    """The splitter's events for the reply of a case."""
    return split_pieces(case.reply, cuts, reasoning_open=case.reasoning_open)


def described(found: Sequence[Event]) -> tuple[str, ...]:
    """Events as lines of a case. Each block is fed to its reader delta by delta."""
    lines: list[str] = []
    for event in _with_blocks(found):
        match event:
            case Text(text):
                lines.append(f"text {json.dumps(text, ensure_ascii=False)}")
            case Reasoning(text):
                lines.append(f"reasoning {json.dumps(text, ensure_ascii=False)}")
            case Block():
                lines += event.lines()
    return tuple(lines)


@dataclass(frozen=True)
class Block:
    dialect: str
    closed: bool
    deltas: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield self.dialect if self.closed else f"{self.dialect} unclosed"
        reader = READERS[self.dialect](NAMES)
        statements: list[Statement] = []
        fault: Unreadable | None = None
        try:
            for delta in self.deltas:
                statements += reader.feed(delta)
            statements += reader.close()
        except Unreadable as unreadable:
            fault = unreadable
        for statement in statements:
            first, *rest = statement.source.split("\n")
            yield f"{statement.line:3}| {first}"
            for line in rest:
                yield f"   | {line}".rstrip()
        for diagnostic in fault.diagnostics if fault else ():
            yield f"  !| line {diagnostic.line}: {diagnostic.message}"


def _with_blocks(found: Sequence[Event]) -> Iterator[Event | Block]:
    """Join prose, and combine the events of each block. Deltas stay separate."""
    block: list[Event] = []
    prose: list[Event] = []
    for event in found:
        if isinstance(event, (Text, Reasoning)):
            prose.append(event)
            continue
        yield from merge_events(prose)
        prose = []
        block.append(event)
        if isinstance(event, BlockEnd):
            assert isinstance(block[0], BlockStart)
            deltas = tuple(part.text for part in block if isinstance(part, BlockDelta))
            yield Block(block[0].dialect, event.closed, deltas)
            block = []
    assert not block
    yield from merge_events(prose)
