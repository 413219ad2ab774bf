"""A program looked for a key that is missing: which keys are there? Host side, from the results alone.

The sandbox says which key was missing, not where. So the dictionaries in the results are looked through, the
latest result first, for those that lack the key. Knows nothing of engines.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emulator import json_codec

_MAX_NODES = 5_000
"""Lists and dictionaries that are looked at."""
_MAX_SHAPES = 3
_MAX_KEYS = 20
_MAX_KEY = 40

# With another word for the same thing: a dictionary's items are no attributes.
_NO_ATTRIBUTE = re.compile(r"'?(?:dict|\w*[Dd]ict\w*)'? object has no attribute '(\w+)'")


def keys_there_are(kind: str, message: str, results: Sequence[tuple[str, Any]]) -> str | None:
    """A hint for an exception of a program with these results, by the tools that gave them."""
    missing = _missing(kind, message)
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
    listed = "; ".join(f"{_listed(keys)} (in the result of {tool})" for tool, keys in shapes)
    return f"the keys there are: {listed}"


def _missing(kind: str, message: str) -> str | None:
    if kind == "KeyError":
        try:
            key = ast.literal_eval(message)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        return key if isinstance(key, str) else None
    found = _NO_ATTRIBUTE.search(message) if kind == "AttributeError" else None
    return found[1] if found else None


def _shapes(results: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of every dictionary, those of the latest results and the outermost ones first."""
    looked = 0
    for tool, result in reversed(results):
        level: deque[Any] = deque([_value(result)])
        while level and looked < _MAX_NODES:
            looked += 1
            value = level.popleft()
            if isinstance(value, Mapping):
                yield tool, tuple(map(str, value))
                level.extend(v for v in value.values() if isinstance(v, (Mapping, list)))
            elif isinstance(value, list):
                level.extend(v for v in value[:_MAX_NODES] if isinstance(v, (Mapping, list)))


def _value(result: Any) -> Any:
    """A result that is text, as what it says as JSON."""
    if not isinstance(result, str) or result.lstrip()[:1] not in ("{", "["):
        return result
    try:
        return json_codec.loads(result)
    except json_codec.NotJSON:
        return result


def _listed(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    named = [repr(key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}...") for key in keys]
    more = [f"and {len(named) - _MAX_KEYS} more"] if len(named) > _MAX_KEYS else []
    return ", ".join([*named[:_MAX_KEYS], *more])
