"""Which of a program's functions may run in the midst of an operation: those that others call. Pure AST."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from emulator.programs.bindings import is_generator
from sandbox.parsing import walk


def reached(
    definitions: Iterable[ast.FunctionDef | ast.AsyncFunctionDef],
    nodes: Iterable[ast.AST],
    given_away: Collection[str],
    asynchronous: Collection[str],
) -> set[str]:
    """The functions that lambdas, generators and functions given away may call, and these."""
    bodies: dict[str, list[ast.AST]] = {}
    for each in definitions:
        bodies.setdefault(each.name, []).append(each)
    # What a coroutine does, it does where it is awaited.
    coroutines = {name for name in asynchronous if not any(map(is_generator, bodies[name]))}
    waiting = [
        *given_away,
        *(name for name in bodies if any(map(is_generator, bodies[name]))),
    ]
    for node in nodes:
        if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
            waiting += [name.id for name in walk(node) if isinstance(name, ast.Name)]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in reached and name not in coroutines:
            reached.add(name)
            waiting += [
                inner.id
                for body in bodies[name]
                for inner in walk(body)
                if isinstance(inner, ast.Name)
            ]
    return reached
