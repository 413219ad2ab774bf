"""Read and write JSON the same way everywhere: integers of any size stay exact, and output is always valid.

orjson does the work. Python's ``json`` handles what orjson cannot: integers beyond 64 bits and lone
surrogates.
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
"""The error that `loads` raises; a subclass of ValueError."""

_LONG = re.compile(rb"[0-9]{19}")
_EVERY_SIXTH = re.compile(rb"[0-9]{3}")
"""Among 19 consecutive digits, every sixth character includes at least three: a quick first test."""


def dumps(
    value: Any, *, option: int | None = None, default: Callable[[Any], Any] | None = None
) -> bytes:
    """Return ``value`` as JSON. NaN and infinities become null, a lone surrogate becomes U+FFFD.

    Raises TypeError if ``value`` is nested too deeply, or is not a JSON value and ``default`` does not
    convert it.
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
    """Parse ``data``. Raises `NotJSON`."""
    value = orjson.loads(data)
    raw = data.encode() if isinstance(data, str) else data
    # orjson reads an integer beyond 64 bits as a float.
    if _EVERY_SIXTH.search(raw[::6]) and _LONG.search(raw):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):  # for example, more digits than Python converts
            return value
    return value


def _finite(value: Any) -> Any:
    """``value`` with None instead of NaN and infinities."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return value
