"""About how much memory a trace uses, and how to reduce one that uses too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from emulator.traces.trace import Trace, Turn

_OBJECT_BYTES = 100
"""About the size of a small object."""


def size_of(trace: Trace) -> int:
    """About the number of bytes. Messages that several turns share count once."""
    seen: set[int] = set()
    size = len(trace.body) + len(trace.cell) + _size(call.arguments for call in trace.calls)
    size += trace.wire.size + _OBJECT_BYTES * len(trace.wire.events)
    size += sum(_turn_size(turn, seen) for turn in trace.turns)
    if (resumed := trace.resumed) is not None:
        size += len(resumed.source) + len(resumed.output)
        size += _size((call.arguments, call.result) for call in resumed.calls)
    return size + _size(cell.outputs for cell in trace.cells)


def strip(trace: Trace) -> None:
    """Reduce ``trace`` to what a list shows. Its turns stay, without their contents."""
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


def _turn_size(turn: Turn, seen: set[int]) -> int:
    pieces = len(turn.reply) + len(turn.reasoning) + len(turn.wire.events)
    size = _OBJECT_BYTES * pieces + turn.wire.size
    size += sum(map(len, turn.reply)) + sum(map(len, turn.reasoning))
    size += len(turn.program) + len(turn.cell) + len(turn.diagnostics) + _size([turn.fields])
    size += sum(2 * len(block.source) + _OBJECT_BYTES for block in turn.blocks)
    for message in turn.messages:
        if id(message) not in seen:
            seen.add(id(message))
            content = message.get("content")
            size += _OBJECT_BYTES
            size += len(content) if isinstance(content, str) else _size([message])
    return size


def _size(values: Iterable[Any]) -> int:
    """The size of JSON, and of a cell's outputs. Without recursion, since a client decides the depth."""
    size, pending = 0, [*values]
    while pending:
        value = pending.pop()
        size += _OBJECT_BYTES
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, Mapping):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            pending += value
        elif hasattr(value, "__dataclass_fields__"):
            pending += vars(value).values()
    return size
