"""GBNF, llama.cpp's notation for grammars: text in, text out. Source: llama.cpp,
grammars/README.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Json = Any

LONGEST = 1000
"""Characters or items that are counted; servers refuse grammars that count much further."""


def literal(text: str) -> str:
    """The expression that admits exactly `text`; nothing in it can end the literal."""
    return '"' + re.sub(r'[\x00-\x1f"\\\x7f]', lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def either(expressions: Iterable[str]) -> str:
    """One of these, in brackets where there is a choice."""
    distinct = list(dict.fromkeys(expressions))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def python(value: Json) -> str:
    """A JSON value as a Python literal, strings in double quotes."""
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
    """Text as it stands between the double quotes of a Python string."""
    return python(text)[1:-1]


def counted(least: int, most: int | None) -> str:
    """How often, behind an expression: ``*``, ``{2,}``; very high counts are not kept."""
    least = min(least, LONGEST)
    if most is None or most > LONGEST:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    if least == most:
        return "" if least == 1 else f"{{{least}}}"
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"
