"""Python source to syntax trees, in a program of many threads. Knows nothing of what is parsed.

CPython 3.11 up to 3.11.7 counts the depth of a tree under construction for all threads together
(python/cpython#106905): where two of them parse at once, a valid source now and then fails with
``SystemError: AST constructor recursion depth mismatch``. So they parse one after the other, which
the interpreter lock has them do in any case.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
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


_NO_NODES = frozenset(
    "ctx op ops id arg attr asname module level kind type_comment type_ignores simple is_async"
    " conversion rest".split()
)


_ALONE = frozenset({ast.Constant, ast.Name})
"""Most nodes of most programs are these, and have none below them."""
_INNER: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}
"""The fields in which a node of a kind may have others, in their order; filled as kinds are met."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below ``node``, without operators and contexts, which have nothing below them."""
    kind = type(node)
    if (fields := _INNER.get(kind)) is None:
        fields = _INNER[kind] = tuple(name for name in kind._fields if name not in _NO_NODES)
    found: list[ast.AST] = []
    for field in fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif type(value) is list:
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """What `ast.walk` gives, in a third of its time, but for operators and contexts."""
    waiting = [node]
    for node in waiting:  # it grows meanwhile
        if type(node) not in _ALONE:
            waiting += children(node)
        yield node


def line_map(before: ast.Module, after: ast.Module) -> dict[int, int]:
    """Line of a rewritten source -> line of the one that it was made from.

    ``before`` is the rewritten tree with the old lines, ``after`` the same parsed from its new source.
    """
    pairs = zip(_statements(before), _statements(after), strict=False)
    return {new.lineno: old.lineno for old, new in pairs}


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    waiting: list[ast.AST] = [tree]
    for node in waiting:  # it grows meanwhile
        for field in _BLOCKS:
            block = getattr(node, field, None)
            if type(block) is list:
                waiting += block
        if isinstance(node, ast.stmt):
            yield node


_MAY_BE_MISPLACED = (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def misplaced(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What CPython's compiler refuses and its parser does not: (line, the SyntaxError's words)."""
    if not any(isinstance(node, _MAY_BE_MISPLACED) for node in walk(tree)):
        return
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while waiting:
        node, function, loop = waiting.pop()
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and not function:
            word = "return" if isinstance(node, ast.Return) else "yield"
            yield node.lineno, f"'{word}' outside function"
        if isinstance(node, ast.Break) and not loop:
            yield node.lineno, "'break' outside loop"
        if isinstance(node, ast.Continue) and not loop:
            yield node.lineno, "'continue' not properly in loop"
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            inside = loop or (
                isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and field == "body"
            )
            for child in values:
                if isinstance(child, ast.AST):
                    if isinstance(node, _FUNCTIONS):
                        waiting.append((child, True, False))
                    elif isinstance(node, ast.ClassDef):
                        waiting.append((child, False, False))
                    else:
                        waiting.append((child, function, inside))
