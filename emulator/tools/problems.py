"""The problems of a call, in words that a model can act on. Knows nothing of schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SHOWN = 80


@dataclass(frozen=True)
class Problem:
    """One problem of a call."""

    path: str
    """The place in Python notation: ``location.city``, ``tags[2]``; "" for the call itself."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class BindError(ValueError):
    """A call that does not fit its tool. ``str()`` returns one line for each problem:

    get_weather(town="Oslo"): unknown argument "town"; expected city, days
    """

    def __init__(self, call: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(f"{call}: {problem}" for problem in problems))
        self.call = call
        self.problems = tuple(problems)


def format_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call with JSON values as one line of Python, shortened."""
    parts = [
        *map(format_value, args),
        *(f"{shorten(key)}={format_value(value)}" for key, value in kwargs.items()),
    ]
    return f"{name}({shorten(', '.join(parts), 300)})"


def format_value(value: Any) -> str:
    """Return a JSON value in Python notation, short and printable."""
    if isinstance(value, str):
        return json.dumps(shorten(value), ensure_ascii=False)
    return shorten(repr(value))


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """`text` cut to `limit` characters; always encodable."""
    cut = text if len(text) <= limit else f"{text[:limit]}..."
    return cut.encode("utf-8", "replace").decode()
