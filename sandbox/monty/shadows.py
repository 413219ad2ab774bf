"""Rename comprehension variables that are called like builtins, for an engine that mistakes them.

Monty 1.4.0 reads the `id` of `[f(id) for id in ids]` as the builtin function. Knows only syntax; line
numbers are kept.
"""

import ast
from collections.abc import Iterator

from sandbox.errors import Unsupported
from sandbox.monty.gaps import BUILTINS
from sandbox.parsing import children, parse, walk

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def rename_shadows(source: str) -> str:
    """Return `source` with other names for such variables; unparsable source as it is.

    Raises Unsupported where a name cannot be changed with certainty.
    """
    if " for " not in source:
        return source
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    used = {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    places: dict[tuple[int, int], str] = {}
    for node in walk(tree):
        if isinstance(node, _COMPREHENSIONS):
            for name in _bound(node) & BUILTINS:
                places.update({(n.lineno, n.col_offset): name for n in _uses(node, name)})
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    for (line, column), name in sorted(places.items(), reverse=True):
        text, end = lines[line - 1], column + len(name)
        if (
            text[column:end] != name.encode()
        ):  # inside an f-string CPython 3.11 tells no exact place
            raise Unsupported(
                f"a comprehension's variable is called like the builtin {name!r}", line
            )
        lines[line - 1] = text[:end] + b"_" * _free(name, used) + text[end:]
    return b"".join(lines).decode()


def _bound(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> set[str]:
    return {
        name.id
        for generator in node.generators
        for name in walk(generator.target)
        if isinstance(name, ast.Name)
    }


def _uses(node: ast.expr, name: str) -> Iterator[ast.Name]:
    """The uses of a comprehension's own variable: all but those in its first iterable."""
    outside = node.generators[0].iter  # type: ignore[attr-defined]
    waiting: list[ast.AST] = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.arg) and inner.arg == name:
            raise Unsupported(f"a variable is called like the builtin {name!r}", inner.lineno)
        if isinstance(inner, ast.Name) and inner.id == name:
            yield inner
        waiting += [child for child in children(inner) if child is not outside]


def _free(name: str, used: set[str]) -> int:
    """How many underscores make the name one that the program does not use."""
    count = 1
    while name + "_" * count in used:
        count += 1
    return count
