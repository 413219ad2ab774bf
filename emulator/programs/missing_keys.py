"""Tell a model which keys exist after its program looked up a missing one.

The sandbox reports the missing key, not the dictionary. So this searches the dictionaries in the results,
the latest result first, for those without the key. Runs on the host and knows nothing of engines.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emulator.programs.saved import parse_result
from sandbox.parsing import literal

_MAX_NODES = 5_000
"""How many lists and dictionaries are searched."""
_MAX_SHAPES = 3
_MAX_KEYS = 20
_MAX_KEY = 40

# Reading a key as an attribute is the same mistake.
_NO_ATTRIBUTE = re.compile(r"'?(?:dict|\w*[Dd]ict\w*)'? object has no attribute '(\w+)'")


def missing_key_hint(kind: str, message: str, results: Sequence[tuple[str, Any]]) -> str | None:
    """The hint for an exception of a program with these (tool, result) pairs; None if no key is missing."""
    missing = _missing_key(kind, message)
    if missing is None:
        return None
    shapes: list[tuple[str, tuple[str, ...]]] = []
    for tool, keys in _shapes(results):
        if missing not in keys and (tool, keys) not in shapes:
            shapes.append((tool, keys))
        if len(shapes) == _MAX_SHAPES:
            break
    if not shapes:
        return None
    listed = "; ".join(f"{_format_keys(keys)} (in the result of {tool})" for tool, keys in shapes)
    return f"the available keys are: {listed}"


def _missing_key(kind: str, message: str) -> str | None:
    if kind == "KeyError":
        try:
            key = literal(message)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        return key if isinstance(key, str) else None
    found = _NO_ATTRIBUTE.search(message) if kind == "AttributeError" else None
    return found[1] if found else None


def _shapes(results: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each dictionary's tool and keys, latest result first, and outermost dictionary first."""
    visited = 0
    for tool, result in reversed(results):
        level: deque[Any] = deque([parse_result(result) if isinstance(result, str) else result])
        while level and visited < _MAX_NODES:
            visited += 1
            value = level.popleft()
            if isinstance(value, Mapping):
                yield tool, tuple(map(str, value))
                level.extend(v for v in value.values() if isinstance(v, (Mapping, list)))
            elif isinstance(value, list):
                level.extend(v for v in value[:_MAX_NODES] if isinstance(v, (Mapping, list)))


def _format_keys(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    names = [repr(key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}...") for key in keys]
    more = [f"and {len(names) - _MAX_KEYS} more"] if len(names) > _MAX_KEYS else []
    return ", ".join([*names[:_MAX_KEYS], *more])
