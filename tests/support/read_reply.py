"""The content of a reply: calls, prose, reasoning, and whether the model must repair it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Reasoning, Text
from emulator.reading.readers import READERS, Statement, Unreadable, calls_tool
from tests.support.formats import Call
from tests.support.replies import NAMES, split_pieces


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
    block: list[str] = []
    raw = dialect = ""
    for event in split_pieces(reply, cuts):
        match event:
            case Text(text):
                found.shown += text
            case Reasoning(text):
                found.thought += text
            case BlockStart(dialect, raw):
                block = []
            case BlockDelta(text, written):
                block.append(text)
                raw += written
            case BlockEnd(written, closed, at_reply_end):
                if not (cut_off and (at_reply_end or not closed)):
                    _read(found, dialect, block, raw + written)
    return found


def _read(found: ReplyContent, dialect: str, block: Sequence[str], raw: str) -> None:
    reader = READERS[dialect](NAMES)
    try:
        statements = [one for delta in block for one in reader.feed(delta)] + reader.close()
    except Unreadable:
        found.needs_repair = True
        return
    if any(calls_tool(statement.source, NAMES) for statement in statements):
        found.calls += [call for statement in statements for call in _calls(statement)]
    elif any(_unknown(statement) for statement in statements):
        found.needs_repair = True
    else:
        found.shown += raw


def _calls(statement: Statement) -> Iterator[Call]:
    for node in ast.walk(ast.parse(statement.source)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
                arguments: dict[str, Any] = {}
                for keyword in keywords:
                    value = ast.literal_eval(keyword.value)
                    arguments |= {keyword.arg: value} if keyword.arg else value
                yield name, arguments


def _unknown(statement: Statement) -> bool:
    nodes = ast.walk(ast.parse(statement.source))
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) for node in nodes)


def same_calls(got: Sequence[Call], wanted: Sequence[Call]) -> bool:
    """Compare calls. The values of elements are text until a schema gives them a type."""
    return [name for name, _ in got] == [name for name, _ in wanted] and all(
        _same(mine, theirs) for (_, mine), (_, theirs) in zip(got, wanted, strict=True)
    )


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
