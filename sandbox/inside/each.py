"""What comprehensions and loops of a cell go over, with the calls of each item. Runs inside the kernel.

Only what is there already is taken ahead: the items of lists, dicts, ranges and the like, and calls whose
arguments cannot be changed by what the loop does meanwhile.

Stops: nothing.
"""

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from sandbox.inside.groups import MOST_AHEAD, Group, Later

_Item = tuple[Any, tuple[Later, ...], tuple[Any, ...]]
"""The variables of an item, its calls, and the values that these use."""

_SOURCES: tuple[Any, ...] = (
    *((), [], "", "\xff\u0100", b"", set(), range(0), range(2**70)),
    *({}, {}.values(), {}.items(), reversed([])),
)
_THERE = tuple(type(iter(source)) for source in _SOURCES)
_OVER_OTHERS: tuple[Any, ...] = (enumerate, zip, tuple)
"""And the tuple in which `zip` has its iterators."""
_SCALARS = (str, int, float, bool, type(None), bytes)
_MOST_VALUES = 2000


def each(
    items: Iterator[_Item], changed: Callable[[], tuple[Any, ...]] = tuple
) -> Iterator[tuple[Any, Group]]:
    """`changed` gives what the loop changes meanwhile."""
    frame: Any = getattr(items, "gi_frame", None)
    source = frame and frame.f_locals.get(".0")
    most = MOST_AHEAD if _is_there(source) else 1
    failed: Exception | None = None
    while failed is None:
        chunk: list[_Item] = []
        try:
            for item in itertools.islice(items, most):
                chunk.append(item)
                if not _apart(changed, item, source):
                    most = 1
                    break
        except Exception as error:  # noqa: BLE001 - it is raised in its turn
            failed = error
        if not chunk:
            break
        group = Group([partial(_same, call) for _, calls, _ in chunk for call in calls])
        for variables, _, _ in chunk:
            yield variables, group
    if failed is not None:
        raise failed


def _same(call: Later) -> Later:
    return call


def _is_there(source: Any) -> bool:
    """Whether to take items of an iterator does nothing else."""
    if type(source) in (enumerate, zip):
        inner = [
            one for one in gc.get_referents(source) if type(one) not in (int, tuple, type(None))
        ]
        inner += [one for each in gc.get_referents(source) if type(each) is tuple for one in each]
        inner = [one for one in inner if hasattr(type(one), "__next__")]
        return bool(inner) and all(map(_is_there, inner))
    return type(source) in _THERE


def _gone_over(source: Any, depth: int = 4) -> Iterator[int]:
    """The lists, dicts and so on from which an iterator takes its items, by their ids."""
    if type(source) in _THERE or type(source) in _OVER_OTHERS:
        for inner in gc.get_referents(source):
            yield id(inner)
            if depth:
                yield from _gone_over(inner, depth - 1)


def _apart(changed: Callable[[], tuple[Any, ...]], item: _Item, source: Any) -> bool:
    """Whether no value that the calls of `item` use, nor what it came from, is something that changes."""
    _, calls, values = item
    try:
        changing = changed()
    except NameError:
        return False
    if any(type(one) not in (list, dict, *_SCALARS) for one in changing):
        return False
    if any(call.batch == 0 for call in calls) and any(type(one) is not list for one in changing):
        return False
    ids = {id(one) for one in changing}
    return not changing or (ids.isdisjoint(_gone_over(source)) and all(_is_apart(values, ids)))


def _is_apart(values: Iterable[Any], changing: set[int]) -> Iterator[bool]:
    waiting, seen = list(values), 0
    while waiting:
        value, seen = waiting.pop(), seen + 1
        if type(value) in _SCALARS:
            continue
        yield id(value) not in changing and seen < _MOST_VALUES
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting += value
        else:
            yield False
