"""The ugly replies of tests/replies/*.md: what models write, and what must be read out of it.

A case is `## a sentence`, perhaps settings, the reply between two rows of `%%%%`, then one line
an item of what is expected:

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

#: Written name -> Python name of the tools that every reply is read with.
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
    """One reply and the lines that describe what is read out of it."""

    title: str
    reply: str
    expected: tuple[str, ...]
    reasoning_open: bool = False


def cases() -> Iterator[Case]:
    """All cases of all files, titled by file and sentence."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_bytes().decode()  # as it stands: some replies have Windows line ends
        found = list(_CASE.finditer(text))
        assert len(found) == len(re.findall(r"^## ", text, re.MULTILINE)), path
        for match in found:
            yield Case(
                f"{path.stem}: {match['title']}",
                match["reply"],
                tuple(line for line in match["expected"].splitlines() if line.strip()),
                "reasoning_open: true" in match["settings"],
            )


def events(case: Case, cuts: Sequence[int] = ()) -> list[Event]:
    """What the splitter says of a reply that arrives cut at `cuts`."""
    splitter = Splitter(NAMES, reasoning_open=case.reasoning_open)
    found: list[Event] = []
    for start, end in zip([0, *cuts], [*cuts, len(case.reply)], strict=True):
        found += splitter.feed(case.reply[start:end])
    return [*found, *splitter.close()]


def described(found: Sequence[Event]) -> tuple[str, ...]:
    """Events, their blocks read by the readers delta by delta, as lines of a case."""
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
    """Prose joined; each block as one. Deltas stay as they came."""
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
