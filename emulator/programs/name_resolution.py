"""Find the tools that the calls of a statement mean, as far as the program does not bind the names itself.

`Spellings` says what a name means; here is which names may mean a tool: not a built-in, not the constructor
of a model, nothing that the program has bound before, and nothing inside a function, whose names the program
may bind later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from emulator.reading.python_syntax import BUILTINS, dotted_name, parse
from emulator.reading.statements import Statement
from emulator.tools.toolset import Toolset
from sandbox.parsing import children, walk

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class NameResolution:
    """Resolves the names in the statements of one program, in order."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._known = {*BUILTINS, *toolset.constructors, *toolset.names}

    def resolve(self, statement: Statement) -> Statement:
        """The statement with the Python names of the tools that its calls mean."""
        tree = _tree(statement)
        if tree is None:
            return statement
        self._known.update(name for node in walk(tree) for name in bound_names(node))
        if not any(map(self._meant, self._unknown_calls(tree))):
            return statement
        tree = parse(statement.source)
        for call in self._unknown_calls(tree):
            if name := self._meant(call):
                call.func = ast.copy_location(ast.Name(name, ast.Load()), call.func)
        source = ast.unparse(tree)
        return replace(statement, source=source, tree=parse(source).body[0])

    def calls_unknown(self, statement: Statement) -> bool:
        """Return True if a resolved statement calls by name what is neither offered, nor Python's, nor the
        program's."""
        if statement.call is not None:
            return statement.call.name not in self._toolset.names
        tree = _tree(statement)
        return tree is not None and any(True for _ in self._unknown_calls(tree))

    def _unknown_calls(self, tree: ast.AST) -> Iterator[ast.Call]:
        pending = [tree]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Call):
                name = dotted_name(node.func)
                if name and name.partition(".")[0] not in self._known:
                    yield node
            if not isinstance(node, _FUNCTIONS):
                pending += children(node)

    def _meant(self, call: ast.Call) -> str | None:
        """The Python name of the tool that a call means, or None."""
        tool = self._toolset.find_in_code(dotted_name(call.func) or "")
        return tool.python_name if tool else None


def bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name


def _tree(statement: Statement) -> ast.AST | None:
    if statement.call is not None:
        return None
    try:
        return statement.tree or parse(statement.source)
    except SyntaxError:
        return None
