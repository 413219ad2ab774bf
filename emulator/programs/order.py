"""Which calls of a program may leave together: the second law of programs over turns.

*Calls leave together only where running them in any order, or at once, cannot matter.* Clients may run the
calls of one message at the same time, while Python's statements run one after the other. To keep a call back
costs a client request, never a model turn, so when in doubt calls leave in order. Together leave:

* calls of one expression that the program wrote as simultaneous: a list, tuple or dict display, a
  comprehension, ``asyncio.gather`` (a *batch*: one evaluation of such an expression);
* calls of tools that only read (`tools/effects.py` says which);
* calls of the same tool about different things, unless it runs commands or what it does shows in order.

`Outgoing` tells of one run which calls are out and whether another may join them; each question takes a time
that does not depend on how many are out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from emulator.settings import Order
from emulator.tools.effects import Effect
from emulator.tools.tool import Tool

Batch = tuple[int, int]
"""A site, and which evaluation of it."""

#: Arguments by which a call says what it is about; the first argument is one of them in any case.
_TARGETS = frozenset(
    "id ids key name names path paths file files filename file_name filepath file_path url uri to "
    "from source destination dest src dst target user username account recipient recipients receiver "
    "sender channel folder dir directory dir_name table branch repo repository host email phone "
    "address thread chat".split()
)
_ENDINGS = ("_id", "_ids", "_path", "_file", "_name", "_url", "_key", "_to", "_from")
_MAX_TEXT = 4_096
_MAX_VALUES = 64


class Outgoing:
    """The calls of one run whose results are not known."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._batches: Counter[Batch] = Counter()
        self._readers: Counter[Batch | None] = Counter()
        self._actors: Counter[tuple[str, Batch | None]] = Counter()
        self._targets: dict[Hashable, Counter[Batch | None]] = defaultdict(Counter)
        self._total = 0

    def may_leave(self, tool: Tool, arguments: Mapping[str, Any], batch: Batch | None) -> bool:
        """Whether such a call may leave beside all that are out."""
        if self._order == "dataflow" or not self._total:
            return True
        if self._order == "strict":
            return False
        others = self._total - (self._batches[batch] if batch else 0)
        if not others:
            return True
        if tool.effect is Effect.READS:
            return others == self._outside(self._readers, batch)
        if tool.effect is Effect.ORDERED:
            return False
        same_tool = self._actors[tool.name, None]
        if batch is not None:
            same_tool -= self._actors[tool.name, batch]
        return others == same_tool and not any(
            self._outside(self._targets[key], batch)
            for key in _looked_up(tool, arguments)
            if key in self._targets
        )

    def add(self, tool: Tool, arguments: Mapping[str, Any], batch: Batch | None) -> None:
        """The call is out."""
        self._total += 1
        if batch is not None:
            self._batches[batch] += 1
        owners = (None, batch) if batch is not None else (None,)
        for owner in owners:
            if tool.effect is Effect.READS:
                self._readers[owner] += 1
            elif tool.effect is Effect.ACTS:
                self._actors[tool.name, owner] += 1
                for key in _left(tool, arguments):
                    self._targets[key][owner] += 1

    @staticmethod
    def _outside(counts: Counter[Batch | None], batch: Batch | None) -> int:
        """How many are not of ``batch``; under None all are counted."""
        return counts[None] - (counts[batch] if batch is not None else 0)


def _looked_up(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Hashable]:
    """What would stand in the way of a call: its own things, what lies in them, and what they lie in."""
    for value in _things(tool, arguments):
        yield ("is", value)
        yield ("in", value)
        for folder in _folders(value):
            yield ("is", folder)


def _left(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Hashable]:
    for value in _things(tool, arguments):
        yield ("is", value)
        for folder in _folders(value):
            yield ("in", folder)


def _things(tool: Tool, arguments: Mapping[str, Any]) -> set[str]:
    """What a call is about, as texts. A call without arguments is about the only thing there is."""
    found: set[str] = set()
    first = next((p.name for p in tool.arguments if p.name in arguments), None)
    for name, value in arguments.items():
        if name == first or name.lower() in _TARGETS or name.lower().endswith(_ENDINGS):
            values = value if isinstance(value, list) else [value]
            found.update(_text(one) for one in values[:_MAX_VALUES])
            if len(values) > _MAX_VALUES:
                found.add("...")
    return found or {""}


def _text(value: Any) -> str:
    return str(value).removeprefix("./").rstrip("/")[:_MAX_TEXT]


def _folders(path: str) -> Iterator[str]:
    """The folders in which a path lies."""
    at = path.rfind("/")
    for _ in range(_MAX_VALUES):
        if at <= 0:
            return
        yield path[:at]
        at = path.rfind("/", 0, at)
