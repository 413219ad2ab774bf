"""Check a program before it runs: every call must name an existing function and fit its signature.

Reads only the syntax tree; the diagnostics are shown to the model as they are. `Toolset.bind` checks
argument values (types, enums, patterns) when the program makes the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from emulator.programs.name_resolution import bound_names
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.python_syntax import BUILTINS
from emulator.tools.toolset import Toolset
from sandbox.parsing import walk


def check(program: Program, toolset: Toolset) -> list[Diagnostic]:
    """The errors in the calls of ``program``, in line order."""
    if _calls_only_tools(program, toolset):
        return []
    found: list[Diagnostic] = [*unknown_calls(program, toolset)]
    for node in walk(program.tree):
        if len(found) >= MAX_DIAGNOSTICS:
            break
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in toolset.names:
                found += _argument_errors(node, name, program, toolset)
    return sorted(found, key=lambda diagnostic: (diagnostic.line, diagnostic.column))


MAX_DIAGNOSTICS = 20
"""How many errors of one program the model is shown: more would not help it."""


@dataclass(frozen=True)
class UnknownCall(Diagnostic):
    """A call of a function that does not exist."""

    is_near: bool = False
    """A tool has a similar name."""


def unknown_calls(program: Program, toolset: Toolset) -> list[UnknownCall]:
    """The calls of functions that do not exist."""
    if _calls_only_tools(program, toolset):
        return []
    nodes = list(walk(program.tree))
    bound = (name for node in nodes for name in bound_names(node))
    defined = {*BUILTINS, *toolset.constructors, *toolset.names, *bound}
    unknown = (
        _unknown(node, node.func.id, program, toolset)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id not in defined
    )
    return list(islice(unknown, MAX_DIAGNOSTICS))


def _calls_only_tools(program: Program, toolset: Toolset) -> bool:
    """Return True if readers handed over all statements as calls of tools. `Toolset.bind` checks their
    arguments."""
    calls = program.calls
    return calls is not None and all(call.name in toolset.names for call in calls)


def _argument_errors(
    node: ast.Call, name: str, program: Program, toolset: Toolset
) -> Iterator[Diagnostic]:
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    keywords = [word.arg for word in node.keywords if word.arg is not None]
    if starred or len(keywords) < len(node.keywords):
        return  # the number of arguments is only known when the program runs
    for problem in toolset.check(name, len(node.args), keywords):
        place = next((word for word in node.keywords if f'"{word.arg}"' in problem.message), node)
        message = f"{name}: {problem}"
        yield program.diagnostic(message, place.lineno, place.col_offset + 1)


def _unknown(node: ast.Call, name: str, program: Program, toolset: Toolset) -> UnknownCall:
    near = toolset.candidates(name)
    offered = f"offered are {', '.join(sorted(toolset.names))[:600]}"
    hint = f"did you mean {' or '.join(near)[:600]}?" if near else offered
    message = f'there is no function "{name}"'
    diagnostic = program.diagnostic(message, node.lineno, node.col_offset + 1, hint)
    return UnknownCall(**vars(diagnostic), is_near=bool(near))
