"""Build expressions in GBNF, llama.cpp's notation for grammars. Source: llama.cpp, grammars/README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Json = Any

LONGEST = 1000
"""The highest repetition count in a grammar; servers refuse grammars with much higher ones."""


def literal(text: str) -> str:
    """Return the expression for exactly `text`. Escapes keep `text` from ending the literal."""
    return '"' + re.sub(r'[\x00-\x1f"\\\x7f]', lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def either(expressions: Iterable[str]) -> str:
    """Return the expression for one of `expressions`, in parentheses if they are several."""
    distinct = list(dict.fromkeys(expressions))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def python(value: Json) -> str:
    """Return a JSON value as a Python literal; strings are in double quotes."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(python, value))}]"
        case dict():
            return f"{{{', '.join(f'{python(name)}: {python(v)}' for name, v in value.items())}}}"
        case _:
            return repr(value)


def quoted(text: str) -> str:
    """Return `text` escaped for a Python string in double quotes, without the quotes."""
    return python(text)[1:-1]


def counted(least: int, most: int | None) -> str:
    """Return the suffix that repeats an expression: ``*``, ``{2,}`` and so on.

    A `most` above `LONGEST` becomes no limit, a `least` above it becomes `LONGEST`.
    """
    least = min(least, LONGEST)
    if most is None or most > LONGEST:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    if least == most:
        return "" if least == 1 else f"{{{least}}}"
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"
