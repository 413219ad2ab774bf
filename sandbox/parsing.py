"""Python source to syntax trees, in a program of many threads. Knows nothing of what is parsed.

CPython 3.11 up to 3.11.7 counts the depth of a tree under construction for all threads together
(python/cpython#106905): where two of them parse at once, a valid source now and then fails with
``SystemError: AST constructor recursion depth mismatch``. So they parse one after the other, which
the interpreter lock has them do in any case.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_PARSING = threading.Lock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`, with all that it raises."""
    with _PARSING:
        return ast.parse(source, filename)


def literal(source: str) -> Any:
    """`ast.literal_eval` of text, with all that it raises."""
    with _PARSING:
        return ast.literal_eval(source)
