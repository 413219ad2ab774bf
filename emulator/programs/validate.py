"""Check a program before anything of it runs: every call must be of something that exists.

Pure AST; the words of the diagnostics go straight into the repair prompt. What needs values (types,
enums, patterns) is judged when the call is made, by `Toolset.bind`.
"""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic
from emulator.tools.toolset import Toolset
from sandbox.parsing import walk

_BUILTINS = frozenset(dir(builtins))


def check(program: Program, toolset: Toolset) -> list[Diagnostic]:
    """What is wrong with the calls of ``program``, in the order of its lines."""
    nodes = list(walk(program.read))
    bound = set(_bound(nodes))
    found: list[Diagnostic] = []
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        name = node.func.id
        if name in toolset.names:
            found += _arguments(node, name, program, toolset)
        elif name not in _BUILTINS and name not in toolset.constructors and name not in bound:
            found.append(_unknown(node, name, program, toolset).diagnostic)
        if len(found) >= MAX_TOLD:
            break
    return sorted(found, key=lambda diagnostic: (diagnostic.line, diagnostic.column))


MAX_TOLD = 20
"""Faults of one program that a model is told of: more would not help it."""


@dataclass(frozen=True)
class Unknown:
    """A call of a function that nobody offered or defined; ``near`` to an offered one, perhaps."""

    diagnostic: Diagnostic
    near: str | None


def unknown_calls(program: Program, toolset: Toolset) -> list[Unknown]:
    """Only the calls of functions that do not exist."""
    nodes = list(walk(program.read))
    defined = {*_BUILTINS, *toolset.constructors, *toolset.names, *_bound(nodes)}
    unknown = (
        _unknown(node, node.func.id, program, toolset)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id not in defined
    )
    return list(islice(unknown, MAX_TOLD))


def _arguments(
    node: ast.Call, name: str, program: Program, toolset: Toolset
) -> Iterator[Diagnostic]:
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    keywords = [word.arg for word in node.keywords if word.arg is not None]
    if starred or len(keywords) < len(node.keywords):
        return  # how many there are shows only when it runs
    for problem in toolset.check(name, len(node.args), keywords):
        place = next((word for word in node.keywords if f'"{word.arg}"' in problem.message), node)
        message = f"{name}: {problem}"
        yield program.diagnostic(message, place.lineno, place.col_offset + 1)


def _unknown(node: ast.Call, name: str, program: Program, toolset: Toolset) -> Unknown:
    offered = sorted(toolset.names)
    near = next(iter(difflib.get_close_matches(name, offered, n=1)), None)
    hint = f"did you mean {near}?" if near else f"offered are {', '.join(offered)[:600]}"
    message = f'there is no function "{name}"'
    return Unknown(program.diagnostic(message, node.lineno, node.col_offset + 1, hint), near)


_NAME_OF: Mapping[type[ast.AST], Callable[[Any], str | None]] = {
    ast.Name: lambda node: node.id if isinstance(node.ctx, ast.Store) else None,
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), attrgetter("name")),
    ast.arg: attrgetter("arg"),
    ast.ExceptHandler: attrgetter("name"),
    ast.alias: lambda node: (node.asname or node.name).split(".")[0],
}
"""The name that a node binds, by its type."""


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that the program itself binds, anywhere."""
    for node in nodes:
        if (name_of := _NAME_OF.get(type(node))) is not None and (name := name_of(node)):
            yield name
