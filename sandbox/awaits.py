"""Make calls of pausing functions awaitable where a program awaits them. Reads only names and syntax.

Models write `await get_weather("Oslo")` and `asyncio.gather(f(1), f(2))` for functions that are not
coroutines. A pausing call has its result when it returns, so `await` is removed in the first case; in the
second each call becomes `asyncio.sleep(0, f(1))`, an awaitable of the result in every engine. Line
numbers stay the same. Calls that reach asyncio in another way stay unchanged, and raise the same
TypeError as in Python. Calls of `AWAITABLE` names are awaitable already.
"""

import ast
from collections.abc import Collection, Iterator

from sandbox.engine import AWAITABLE
from sandbox.parsing import parse, walk


def settle_awaits(source: str, names: Collection[str], awaited: str = "") -> str:
    """Return `source` with awaitable calls of `names`; source that cannot be parsed stays unchanged.

    ``awaited`` is the name of a function that makes any value awaitable, if the engine has one. Other awaited
    expressions may be results, so they are passed through it.
    """
    if "await" not in source and "asyncio" not in source:
        return source
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    names = {name for name in names if not name.startswith(AWAITABLE)}
    edits = sorted(_edits(tree, names, awaited), reverse=True)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    for line, column, removed, inserted in edits:
        text = lines[line - 1]
        rest = text[column + removed :]
        lines[line - 1] = text[:column] + inserted + (rest.lstrip(b" \t") if removed else rest)
    return b"".join(lines).decode()


def _edits(
    tree: ast.AST, names: Collection[str], awaited: str
) -> Iterator[tuple[int, int, int, bytes]]:
    """(line, byte column, number of bytes to remove, bytes to insert) for each change."""
    for node in walk(tree):
        if isinstance(node, ast.Await) and _pauses(node.value, names):
            yield node.lineno, node.col_offset, len(b"await"), b""
        elif isinstance(node, ast.Await) and awaited:
            value = node.value
            yield value.lineno, value.col_offset, 0, awaited.encode() + b"("
            yield value.end_lineno or value.lineno, value.end_col_offset or 0, 0, b")"
        elif isinstance(node, ast.Call) and _is_asyncio(node.func):
            for argument in node.args:
                for call in _calls(argument, names):
                    yield call.lineno, call.col_offset, 0, b"asyncio.sleep(0, "
                    yield call.end_lineno or call.lineno, call.end_col_offset or 0, 0, b")"


def _calls(node: ast.expr, names: Collection[str]) -> Iterator[ast.expr]:
    """Pausing calls that are a whole argument, or an item of a starred argument, a list or a
    comprehension."""
    match node:
        case ast.Call() if _pauses(node, names):
            yield node
        case ast.Starred(value=inner) | ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
            yield from _calls(inner, names)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _calls(item, names)


def _pauses(node: ast.expr, names: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_asyncio(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "asyncio"
        and function.attr not in {"sleep", "to_thread"}
    )
