"""Which functions of a program may run in the middle of an operation, because other code calls them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from sandbox.parsing import children, walk

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def blocking_functions(
    functions: Iterable[_Function], nodes: Iterable[ast.AST], callbacks: Collection[str]
) -> set[str]:
    """Callbacks, generators, and the functions that these, lambdas and generator expressions may call.

    Not coroutines: their bodies run where they are awaited.
    """
    bodies: dict[str, list[_Function]] = {}
    for each in functions:
        bodies.setdefault(each.name, []).append(each)
    generators = {name for name, defs in bodies.items() if any(map(_is_generator, defs))}
    coroutines = {
        each.name for each in functions if isinstance(each, ast.AsyncFunctionDef)
    } - generators
    waiting = [*callbacks, *generators]
    for node in nodes:
        if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
            waiting += _names_in(node)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in found and name not in coroutines:
            found.add(name)
            for body in bodies[name]:
                waiting += _names_in(body)
    return found


def _names_in(node: ast.AST) -> list[str]:
    return [inner.id for inner in walk(node) if isinstance(inner, ast.Name)]


def _is_generator(function: ast.AST) -> bool:
    waiting = list(children(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += children(node)
    return False
