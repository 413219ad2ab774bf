"""Parse Python source in a process with many threads, and walk the trees.

CPython 3.11 up to 3.11.7 counts the depth of a tree under construction for all threads together
(python/cpython#106905): if two threads parse at the same time, valid source sometimes fails with
``SystemError: AST constructor recursion depth mismatch``. So one thread parses at a time; the interpreter
lock enforces that anyway.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator
from typing import Any

_PARSING = threading.Lock()

# What CPython warns of in a model's text, such as `"\d"`, is not for the log. (catch_warnings is no help: it
# changes the filters of all threads.)
for _category in (SyntaxWarning, DeprecationWarning):  # the latter in 3.11
    warnings.filterwarnings("ignore", category=_category, module=r"<(?:program|unknown)>\Z")


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`; raises the same exceptions."""
    with _PARSING:
        return ast.parse(source, filename)


def literal(source: str) -> Any:
    """`ast.literal_eval` of text; raises the same exceptions."""
    with _PARSING:
        return ast.literal_eval(source)


_FIELDS_WITHOUT_CHILDREN = frozenset(
    "ctx op ops id arg attr asname module level kind type_comment type_ignores simple is_async"
    " conversion rest".split()
)


_LEAVES = frozenset({ast.Constant, ast.Name})
"""The most frequent nodes; they have no children."""
_CHILD_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}
"""The fields in which a type of node has children, in their order; filled on demand."""


def children(node: ast.AST) -> list[ast.AST]:
    """The direct children of ``node``, without operators and contexts."""
    kind = type(node)
    if (fields := _CHILD_FIELDS.get(kind)) is None:
        fields = _CHILD_FIELDS[kind] = tuple(
            name for name in kind._fields if name not in _FIELDS_WITHOUT_CHILDREN
        )
    found: list[ast.AST] = []
    for field in fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif type(value) is list:
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, as `ast.walk` yields them, but without operators and contexts, and three times as fast."""
    waiting = [node]
    for node in waiting:  # it grows meanwhile
        if type(node) not in _LEAVES:
            waiting += children(node)
        yield node


def line_map(before: ast.Module, after: ast.Module) -> dict[int, int]:
    """Line of a rewritten source -> line of the original source.

    ``before`` is the rewritten tree with its original lines, ``after`` the same tree parsed from the new
    source.
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
    """Statements that CPython's parser accepts and its compiler rejects: (line, message of the
    SyntaxError)."""
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
