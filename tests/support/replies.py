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

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from emulator.reading.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merge_events,
)
from emulator.reading.readers import READERS, Statement, Unreadable, calls_tool
from emulator.reading.splitter import Splitter
from emulator.reading.tool_names import ToolNames
from tests.support.formats import Call

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
    """Events as lines of a case."""
    lines: list[str] = []
    for event in with_blocks(found):
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
    """The events of a block. Its deltas stay separate: its reader receives them one by one."""

    events: Sequence[Event]

    @property
    def start(self) -> BlockStart:
        assert isinstance(self.events[0], BlockStart)
        return self.events[0]

    @property
    def end(self) -> BlockEnd:
        assert isinstance(self.events[-1], BlockEnd)
        return self.events[-1]

    @property
    def deltas(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, BlockDelta)]

    def read(self) -> tuple[list[Statement], Unreadable | None]:
        return read_block(self.start.dialect, self.deltas)

    def lines(self) -> Iterator[str]:
        yield self.start.dialect if self.end.closed else f"{self.start.dialect} unclosed"
        statements, fault = self.read()
        for statement in statements:
            first, *rest = statement.source.split("\n")
            yield f"{statement.line:3}| {first}"
            for line in rest:
                yield f"   | {line}".rstrip()
        for diagnostic in fault.diagnostics if fault else ():
            yield f"  !| line {diagnostic.line}: {diagnostic.message}"


def read_block(dialect: str, deltas: Iterable[str]) -> tuple[list[Statement], Unreadable | None]:
    """The statements of a block before its first fault, and the fault."""
    reader = READERS[dialect](ToolNames(NAMES, frozenset({"Event"})))
    statements: list[Statement] = []
    try:
        for delta in deltas:
            statements += reader.feed(delta)
        return statements + reader.close(), None
    except Unreadable as unreadable:
        return statements, unreadable


def with_blocks(found: Sequence[Event]) -> Iterator[Event | Block]:
    """Join prose, and combine the events of each block."""
    for is_prose, group in groupby(found, lambda event: isinstance(event, (Text, Reasoning))):
        if is_prose:
            yield from merge_events(list(group))
            continue
        block: list[Event] = []
        for event in group:
            block.append(event)
            if isinstance(event, BlockEnd):
                yield Block(block)
                block = []
        assert not block


@dataclass
class ReplyContent:
    """``needs_repair``: a block was meant as a call and is not one."""

    calls: list[Call] = field(default_factory=list)
    shown: str = ""
    thought: str = ""
    needs_repair: bool = False


def read_reply(reply: str, cuts: Sequence[int] = (), *, cut_off: bool = False) -> ReplyContent:
    """Read a reply that arrives cut at ``cuts``; with ``cut_off``, a token limit ended it."""
    found = ReplyContent()
    for event in with_blocks(split_pieces(reply, cuts)):
        match event:
            case Text(text):
                found.shown += text
            case Reasoning(text):
                found.thought += text
            case Block() if not (cut_off and (event.end.at_reply_end or not event.end.closed)):
                _add_block(found, event)
    return found


def _add_block(found: ReplyContent, block: Block) -> None:
    statements, fault = block.read()
    if fault is None and any(calls_tool(statement.source, NAMES) for statement in statements):
        found.calls += [_parse_call(node) for node in _calls(statements) if not node.args]
    elif fault is not None or _calls(statements):
        found.needs_repair = True
    else:
        found.shown += "".join(event.raw for event in block.events)


def _calls(statements: Sequence[Statement]) -> list[ast.Call]:
    """Everything that is called by a plain name."""
    nodes = (node for statement in statements for node in ast.walk(ast.parse(statement.source)))
    return [
        node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def _parse_call(node: ast.Call) -> Call:
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        value = ast.literal_eval(keyword.value)
        arguments |= {keyword.arg: value} if keyword.arg else value
    return ast.unparse(node.func), arguments


def same_calls(got: Sequence[Call], wanted: Sequence[Call]) -> bool:
    """Compare calls. The values of elements are text until a schema gives them a type."""
    return _same([list(call) for call in got], [list(call) for call in wanted])


def _same(got: Any, wanted: Any) -> bool:
    if isinstance(got, str) and not isinstance(wanted, str):
        try:
            got = json.loads(got)
        except ValueError:
            return False
    match got, wanted:
        case dict(), dict():
            return got.keys() == wanted.keys() and all(_same(got[k], wanted[k]) for k in wanted)
        case list(), list():
            return len(got) == len(wanted) and all(map(_same, got, wanted))
    return bool(got == wanted)
