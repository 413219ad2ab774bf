"""JSON, read and written alike everywhere: integers of any size are exact, what is written is always valid.

orjson does it; what it cannot do (integers beyond 64 bits, half of a surrogate pair) Python's ``json`` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

SORTED = orjson.OPT_SORT_KEYS
INDENTED = orjson.OPT_INDENT_2

NotJSON = orjson.JSONDecodeError
"""What `loads` raises; a ValueError."""

_LONG = re.compile(rb"[0-9]{19}")
_EVERY_SIXTH = re.compile(rb"[0-9]{3}")
"""Of 19 digits in a row at least three stand at every sixth place: looking there is quick."""


def dumps(
    value: Any, *, option: int | None = None, default: Callable[[Any], Any] | None = None
) -> bytes:
    """``value`` as JSON. NaN and infinities become null, a lone surrogate becomes U+FFFD.

    Raises TypeError for what is nested too deeply, and for what is no JSON value, unless ``default`` turns it
    into one.
    """
    try:
        return orjson.dumps(value, option=option, default=default)
    except TypeError as error:
        if "ecursion" in str(error):  # orjson goes 254 levels deep
            raise
        indent = 2 if option and option & INDENTED else None
        text = json.dumps(
            _finite(value),
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ": ") if indent else (",", ":"),
            indent=indent,
            sort_keys=bool(option and option & SORTED),
            default=default,
        )
        return text.encode("utf-8", "replace")


def loads(data: bytes | str) -> Any:
    """The value that ``data`` says. Raises `NotJSON`."""
    value = orjson.loads(data)
    raw = data.encode() if isinstance(data, str) else data
    # Only orjson's own floats can be wrong, and only for a long row of digits.
    if _EVERY_SIXTH.search(raw[::6]) and _LONG.search(raw):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):  # more digits than Python converts, say
            return value
    return value


def _finite(value: Any) -> Any:
    """``value`` with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return value
