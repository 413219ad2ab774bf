"""Which functions of a program may run in the middle of an operation, because other code calls them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from emulator.programs.scopes import own_nodes
from sandbox.parsing import walk


def blocking_functions(
    functions: Iterable[ast.FunctionDef], nodes: Iterable[ast.AST], callbacks: Collection[str]
) -> set[str]:
    """Callbacks, generators, and the functions that these, lambdas and generator expressions may call."""
    bodies: dict[str, list[ast.FunctionDef]] = {}
    for each in functions:
        bodies.setdefault(each.name, []).append(each)
    generators = {
        each.name
        for each in functions
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(each.body))
    }
    waiting = [*callbacks, *generators]
    for node in nodes:
        if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
            waiting += _names_in(node)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in found:
            found.add(name)
            for body in bodies[name]:
                waiting += _names_in(body)
    return found


def _names_in(node: ast.AST) -> list[str]:
    return [inner.id for inner in walk(node) if isinstance(inner, ast.Name)]
