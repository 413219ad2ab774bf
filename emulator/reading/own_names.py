"""Find out whether Python defines an offered name itself: a call of that name is then not a call of a tool.

Fed the syntax trees of one block (or of several blocks of a reply), statement by statement, as the model
wrote them. Names have Python's scopes: a parameter or a local variable counts inside its function only, and
the body of a function sees what the module defines after it. An assignment of a tool's own result to its
name (``search = search("x")``) defines nothing. Knows nothing of blocks.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from emulator.reading.python_syntax import dotted_name, is_builtin_use
from emulator.reading.tool_names import ToolNames
from sandbox.parsing import children

#: Modules that models invent to import the offered functions from.
STUB_MODULES = frozenset(
    "functions tools tool default_api api tool_api my_tools stubs my_functions utils".split()
)
_KNOWN_MODULES = sys.stdlib_module_names | STUB_MODULES | {"pydantic", "typing_extensions"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_Imports = ast.Import | ast.ImportFrom
_PASSIVE = (*_Scope, ast.Import, ast.ImportFrom)


class OwnNames:
    """What the code fed so far says about the offered names."""

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._bound: set[str] = set()
        self._calls_in_functions: set[str] = set()
        self._own_calls = False
        self.defined: set[str] = set()
        """Offered names that the code defines with a body of its own, or imports."""
        self.repeats_stub = False
        """A tool is declared without a body, or imported from a module such as ``tools``."""
        self.is_script = False
        """The code needs a terminal, or modules that are not in the standard library."""
        self.has_definitions = False
        """The code defines functions or classes."""
        self._has_actions = False

    @property
    def only_defines(self) -> bool:
        """Whether the code consists of definitions: nothing in it calls a function."""
        return self.has_definitions and not self._has_actions

    @property
    def shadows_tool(self) -> bool:
        """Whether the code defines an offered name with a body of its own, or calls its own object by it."""
        in_functions = {name.partition(".")[0] for name in self._calls_in_functions}
        return bool(self.defined) or self._own_calls or bool(in_functions & self._bound)

    def feed(self, tree: ast.Module) -> None:
        for statement in tree.body:
            self._examine(statement)

    def _examine(self, statement: ast.stmt) -> None:
        self.has_definitions |= isinstance(statement, _Scope)
        self._has_actions |= not isinstance(statement, _PASSIVE)
        self._declare(statement)
        self._bound |= set(self._bindings(statement))
        nodes: list[tuple[ast.AST, frozenset[str], bool]] = [(statement, frozenset(), False)]
        while nodes:
            node, local, in_function = nodes.pop()
            if isinstance(node, ast.Call):
                self._call(node, local, in_function=in_function)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            if isinstance(node, _Function):
                inner = {argument.arg for argument in _arguments(node)}
                body = node.body if isinstance(node.body, list) else [node.body]
                for part in body:
                    inner |= set(self._bindings(part))
                local, in_function = local | inner, True
            nodes += [(child, local, in_function) for child in children(node)]

    def _declare(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if (name := self._names.find(node.name)) and _is_stub(node):
                self.repeats_stub = True
            elif name:
                self.defined.add(name)

    def _import(self, node: _Imports) -> None:
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            root = (module or alias.name).partition(".")[0]
            found = {self._names.find(name) for name in (alias.name, alias.asname or "")}
            tools = {name for name in found if name}
            if root in STUB_MODULES:
                self.repeats_stub |= bool(tools)
            else:
                self.defined |= tools
                self.is_script |= root not in _KNOWN_MODULES or root == "argparse"

    def _call(self, node: ast.Call, local: frozenset[str], *, in_function: bool) -> None:
        written = dotted_name(node.func)
        if written is None or is_builtin_use(node):
            return
        self.is_script |= written == "input" and self._names.find("input") is None
        if self._names.find(written) is None:
            return
        root = written.partition(".")[0]
        if root in local or (root in self._bound and not in_function):
            self._own_calls = True
        elif in_function:
            self._calls_in_functions.add(written)

    def _bindings(self, node: ast.AST) -> Iterator[str]:
        """The names that a statement binds in its own scope, without the definitions that only repeat a
        stub."""
        pending = [node]
        while pending:
            inner = pending.pop()
            match inner:
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if self._is_result(inner):
                    continue
                case ast.Name(id=name, ctx=ast.Store()):
                    yield name
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                    yield name
                case ast.ClassDef(name=name):
                    yield name
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if not (self._names.find(name) and _is_stub(inner)):
                        yield name
                case ast.Import() | ast.ImportFrom():
                    yield from _imported(inner)
            if not isinstance(inner, _Scope):
                pending += children(inner)

    def _is_result(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
        """Return True for ``search = search("x")``."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        bound = {target.id for target in targets if isinstance(target, ast.Name)}
        if node.value is None or not any(map(self._names.find, bound)):
            return False
        pending: list[ast.AST] = [node.value]
        while pending:
            inner = pending.pop()
            match inner:
                case ast.Call(func=ast.Name(id=name)) if name in bound:
                    return True
            if not isinstance(inner, _Scope):
                pending += children(inner)
        return False


def _imported(node: _Imports) -> Iterator[str]:
    for alias in node.names:
        name = (alias.asname or alias.name).partition(".")[0]
        module = node.module if isinstance(node, ast.ImportFrom) else alias.name
        if (module or "").partition(".")[0] not in STUB_MODULES:
            yield name


def _arguments(node: _Function) -> Iterator[ast.arg]:
    arguments = node.args
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _is_stub(node: ast.stmt) -> bool:
    """Return True for a declaration without a body: a docstring, ``...``, ``pass``."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    for statement in node.body:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case (
                ast.Raise(exc=ast.Name(id="NotImplementedError"))
                | ast.Raise(exc=ast.Call(func=ast.Name(id="NotImplementedError")))
            ):
                pass
            case _:
                return False
    return True
