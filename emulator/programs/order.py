"""Decide which calls of a program may share one message (the order law).

A client may run the calls of one message concurrently, but Python's statements run in order. A call may
join the pending calls only if running them in any order, or at the same time, cannot change the outcome:

* calls from one simultaneous expression: a display, a comprehension, ``asyncio.gather`` (one evaluation
  of such an expression is a *batch*);
* calls of read-only tools (see ``tools/effects.py``);
* calls of the same tool on different resources, unless the tool runs commands or its effect depends on order.

Deferring a call costs one client request and no model turn, so in doubt a call waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from emulator.settings.settings import Order
from emulator.tools.effects import Effect
from emulator.tools.tool import Tool

Batch = int
"""The number of an evaluation of a simultaneous expression; 0 for a call outside of one."""

#: Arguments that name a resource. The first argument of a call always counts as one.
_RESOURCE_ARGUMENTS = frozenset(
    "id ids key name names path paths file files filename file_name filepath file_path url uri to "
    "from source destination dest src dst target user username account recipient recipients receiver "
    "sender channel folder dir directory dir_name table branch repo repository host email phone "
    "address thread chat".split()
)
_RESOURCE_ENDINGS = ("_id", "_ids", "_path", "_file", "_name", "_url", "_key", "_to", "_from")
_MAX_TEXT = 4_096
_MAX_VALUES = 64


class PendingCalls:
    """The calls of one run that have been sent and have no result yet."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.total = 0
        self.acting = 0
        """How many of them do more than read."""
        # Each counter counts per batch, and under 0 all calls.
        self._calls: Counter[Batch] = Counter()
        self._readers: Counter[Batch] = Counter()
        self._by_tool: dict[str, Counter[Batch]] = defaultdict(Counter)
        self._by_key: dict[Hashable, Counter[Batch]] = defaultdict(Counter)

    def accepts(self, tool: Tool, arguments: Mapping[str, Any], batch: Batch) -> bool:
        """Return True if this call may be sent together with every pending call. Runs in constant time."""
        if self._order == "dataflow" or not self.total:
            return True
        if self._order == "strict":
            return False
        others = _outside(self._calls, batch)
        if not others:
            return True
        if tool.effect is Effect.READS:
            return others == _outside(self._readers, batch)
        if tool.effect is Effect.ORDERED or others != _outside(self._by_tool[tool.name], batch):
            return False
        keys = _conflicting_keys(tool, arguments)
        return not any(_outside(self._by_key[key], batch) for key in keys if key in self._by_key)

    def add(self, tool: Tool, arguments: Mapping[str, Any], batch: Batch) -> None:
        self.total += 1
        counters = [self._calls]
        self.acting += tool.effect is not Effect.READS
        if tool.effect is Effect.READS:
            counters.append(self._readers)
        elif tool.effect is Effect.ACTS:
            counters.append(self._by_tool[tool.name])
            counters += [self._by_key[key] for key in _resource_keys(tool, arguments)]
        for counter in counters:
            counter.update({0, batch})


def _outside(counter: Counter[Batch], batch: Batch) -> int:
    """How many of the counted calls are not in ``batch``."""
    return counter[0] - (counter[batch] if batch else 0)


def _resource_keys(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Hashable]:
    """Keys under which a pending call is found: its resources, and the folders that contain them."""
    for resource in _resources(tool, arguments):
        yield ("is", resource)
        for folder in _folders(resource):
            yield ("in", folder)


def _conflicting_keys(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Hashable]:
    """Keys that block a call: its own resources, anything inside them, and the folders that contain them."""
    for resource in _resources(tool, arguments):
        yield ("is", resource)
        yield ("in", resource)
        for folder in _folders(resource):
            yield ("is", folder)


def _resources(tool: Tool, arguments: Mapping[str, Any]) -> set[str]:
    """The resources that a call names (paths, ids, recipients), normalized. A call that names none
    returns {""}."""
    found: set[str] = set()
    first = next((p.name for p in tool.arguments if p.name in arguments), None)
    for name, value in arguments.items():
        lower = name.lower()
        if name == first or lower in _RESOURCE_ARGUMENTS or lower.endswith(_RESOURCE_ENDINGS):
            values = value if isinstance(value, list) else [value]
            found.update(
                str(one).removeprefix("./").rstrip("/")[:_MAX_TEXT] for one in values[:_MAX_VALUES]
            )
            if len(values) > _MAX_VALUES:
                found.add("...")
    return found or {""}


def _folders(path: str) -> Iterator[str]:
    """The folders that contain ``path``, innermost first."""
    at = path.rfind("/")
    for _ in range(_MAX_VALUES):
        if at <= 0:
            return
        yield path[:at]
        at = path.rfind("/", 0, at)
