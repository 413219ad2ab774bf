"""How much memory a trace holds on to, about, and what is left of one that holds too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emulator.traces.trace import Trace, Turn

_EACH = 100
"""Bytes of a small object, about."""


def size_of(trace: Trace) -> int:
    """About how many bytes; the messages that several turns share are counted once."""
    seen: set[int] = set()
    size = len(trace.body) + len(trace.cell) + _size(call.arguments for call in trace.calls)
    size += trace.wire.size + _EACH * len(trace.wire.events)
    size += sum(_turn(turn, seen) for turn in trace.turns)
    if (resumed := trace.resumed) is not None:
        size += len(resumed.source) + len(resumed.output)
        size += _size((one.arguments, one.result) for one in resumed.calls)
    return size + _size(cell.outputs for cell in trace.cells)


def strip(trace: Trace) -> None:
    """Leave what a list shows; the turns stay, without what was said in them."""
    trace.body = b""
    trace.stubs, trace.tools = str, ()
    trace.resumed = None
    trace.cell = ""
    trace.cells, trace.calls = [], []
    trace.wire.events.clear()
    for turn in trace.turns:
        turn.messages, turn.fields, turn.reply, turn.reasoning = (), {}, (), ()
        turn.blocks, turn.program, turn.cell, turn.lines = [], "", "", {}
        turn.diagnostics = ""
        turn.wire.events.clear()
    trace.stripped = True


def _turn(turn: Turn, seen: set[int]) -> int:
    size = _EACH * (len(turn.reply) + len(turn.reasoning) + len(turn.wire.events)) + turn.wire.size
    size += sum(map(len, turn.reply)) + sum(map(len, turn.reasoning))
    size += len(turn.program) + len(turn.cell) + len(turn.diagnostics) + _size([turn.fields])
    size += sum(2 * len(block.written) + _EACH for block in turn.blocks)
    for message in turn.messages:
        if id(message) not in seen:
            seen.add(id(message))
            content = message.get("content")
            size += _EACH + (len(content) if isinstance(content, str) else _size([message]))
    return size


def _size(values: Iterable[Any]) -> int:
    """Of JSON, and of a cell's outputs; without recursion, since a client decides how deep it is."""
    size, rest = 0, [*values]
    while rest:
        one = rest.pop()
        size += _EACH
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, Mapping):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            rest += one
        elif hasattr(one, "__dataclass_fields__"):
            rest += vars(one).values()
    return size
