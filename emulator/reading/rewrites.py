"""Rewrites of a program's syntax tree: one table of changes.

Knows the offered names; knows nothing of blocks or streaming. No rewrite guesses a value: it
changes how a call is written, never what is called or with what arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator.reading.calls import HALF, PARALLEL, call_statement, find_calls, join_surrogates
from emulator.reading.own_names import STUB_MODULES
from emulator.reading.python_syntax import called_tool, callee, dotted_name, is_builtin_use, parse
from emulator.reading.repairs import parse_repaired
from emulator.reading.statements import Unreadable
from emulator.reading.tool_names import ToolNames


@dataclass(frozen=True)
class Rewrite:
    """A change of the tree at nodes of the types `on`. `apply` returns a node, several, or none
    (dropped).

    `apply` returns the node itself if the row does not apply. Rows with `top` apply to top-level
    statements only.
    """

    why: str
    on: tuple[type[ast.AST], ...]
    apply: Callable[[ast.AST, ToolNames], ast.AST | list[ast.stmt]]
    top: bool = False


def _constants(node: ast.AST, names: ToolNames) -> ast.AST:
    assert isinstance(node, ast.Name)
    values = {"true": True, "false": False, "null": None}
    if isinstance(node.ctx, ast.Load) and node.id in values and not names.find(node.id):
        return ast.Constant(values[node.id])
    return node


_SURROGATE = re.compile("[\ud800-\udfff]")


def _characters(node: ast.AST, _: ToolNames) -> ast.AST:
    assert isinstance(node, ast.Constant)
    if not isinstance(node.value, str) or not _SURROGATE.search(node.value):
        return node
    try:
        return ast.Constant(join_surrogates(node.value))
    except ValueError:
        raise SyntaxError(HALF) from None


_METHODS = frozenset("invoke ainvoke run arun call acall execute __call__ remote".split())


def _rename(node: ast.AST, names: ToolNames) -> ast.AST:
    assert isinstance(node, ast.Call)
    written = callee(node)
    if written is None or is_builtin_use(node):
        return node
    name = names.find(written)
    if name is None and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        name = names.find(written.rpartition(".")[0])
    if name is None or (isinstance(node.func, ast.Name) and node.func.id == name):
        return node
    return ast.Call(ast.Name(name, ast.Load()), node.args, node.keywords)


def _unquote_calls(node: ast.AST, names: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, ast.Expr)
    match node.value:
        case ast.Constant(value=str(text)):
            texts = [text]
        case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items) if all(
            isinstance(item, ast.Constant) and isinstance(item.value, str) for item in items
        ):
            texts = [str(item.value) for item in items if isinstance(item, ast.Constant)]
        case _:
            return node
    found: list[ast.stmt] = []
    for text in texts:
        try:
            tree, _ = parse_repaired(text.strip(), names)
        except SyntaxError:
            return node
        if not tree.body or not all(_are_calls(inner, names) for inner in tree.body):
            return node
        found += [piece.node for piece in rewrite(tree, names)]
    return found


def _are_calls(node: ast.stmt, names: ToolNames) -> bool:
    """Return True for ``f(1)`` and ``f(1), g(2)``."""
    if not isinstance(node, ast.Expr):
        return False
    calls = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return all(called_tool(call, names) for call in calls)


def _json_calls(node: ast.AST, names: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, ast.Expr)
    match node.value:
        case ast.Dict() | ast.List():
            literal: ast.expr = node.value
        case ast.Call(func=func, args=[literal], keywords=[]) if dotted_name(func) == PARALLEL:
            pass
        case ast.Call(
            func=func, args=[], keywords=[ast.keyword(arg="tool_uses", value=literal)]
        ) if dotted_name(func) == PARALLEL:
            pass
        case _:
            return node
    try:
        value = ast.literal_eval(literal)
        found = [call_statement(name, args, names, 1) for name, args in find_calls(value, names)]
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError, Unreadable):
        return node
    return [inner for call in found for inner in parse(call.source).body] or node


_MODEL_NAMES = frozenset({"BaseModel", "Field", "ConfigDict"})
"""What models import from pydantic to declare the toolset's models again, which are already defined."""


def _drop_declaration(node: ast.AST, names: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    if names.find(node.name) or node.name in names.models:
        return []
    if isinstance(node, ast.ClassDef) and any(dotted_name(b) == "BaseModel" for b in node.bases):
        # The program's own model: its import was dropped.
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & _MODEL_NAMES
        return [ast.ImportFrom("pydantic", [ast.alias(name) for name in sorted(used)], 0), node]
    return node


def _drop_import(node: ast.AST, names: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, (ast.Import, ast.ImportFrom))
    aliases: list[ast.stmt] = []
    if isinstance(node, ast.Import):
        others = [a for a in node.names if a.asname or not _is_stub_module(a.name, names)]
        remaining: ast.stmt = ast.Import(others)
    else:
        dropped = _MODEL_NAMES if node.module == "pydantic" else ()
        from_stubs = node.module in STUB_MODULES
        others = [
            a for a in node.names if not (from_stubs or a.name in dropped or names.find(a.name))
        ]
        remaining = ast.ImportFrom(node.module, others, node.level)
        aliases = [
            ast.Assign([ast.Name(alias.asname, ast.Store())], ast.Name(name, ast.Load()))
            for alias in node.names
            if alias.asname and (name := names.find(alias.name))
        ]
    if len(others) == len(node.names):
        return node
    return [remaining, *aliases] if others else aliases


def _is_stub_module(name: str, names: ToolNames) -> bool:
    return name in STUB_MODULES or names.find(name) is not None


def _main_guard(node: ast.AST, _: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, ast.If)
    match node.test:
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant("__main__")]
        ):
            return node.body
    return node


def _drop_annotation(node: ast.AST, _: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, ast.AnnAssign)
    return node if node.value else []


_LANGUAGES = frozenset({"python", "py", "python3", "tool_code", "json", "tool_call", "code"})


def _language(node: ast.AST, names: ToolNames) -> ast.AST | list[ast.stmt]:
    assert isinstance(node, ast.Expr)
    match node.value:
        case ast.Name(id=word) if word in _LANGUAGES and not names.find(word):
            return []
    return node


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("JSON's true, false and null in Python", (ast.Name,), _constants),
    Rewrite("emoji as two escapes, as JSON writes them", (ast.Constant,), _characters),
    Rewrite(
        "functions.f, wire names, f.invoke(...) and 'f'(...) mean the stub f", (ast.Call,), _rename
    ),
    Rewrite("the language's name on a line of its own", (ast.Expr,), _language, top=True),
    Rewrite("the body of a main guard is the program", (ast.If,), _main_guard, top=True),
    Rewrite(
        "`Result: sunny` is prose that happens to parse",
        (ast.AnnAssign,),
        _drop_annotation,
        top=True,
    ),
    Rewrite(
        "stubs and models need no import", (ast.Import, ast.ImportFrom), _drop_import, top=True
    ),
    Rewrite(
        "a repeated declaration of a stub would hide the real one; models are already defined",
        (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
        _drop_declaration,
        top=True,
    ),
    Rewrite("a call written as a string", (ast.Expr,), _unquote_calls, top=True),
    Rewrite(
        "a call written as a dict, or several in multi_tool_use.parallel",
        (ast.Expr,),
        _json_calls,
        top=True,
    ),
)


_TOP = tuple(row for row in REWRITES if row.top)
_TOP_TYPES = frozenset(on for row in _TOP for on in row.on)
_INNER = {
    on: tuple(row for row in REWRITES if not row.top and on in row.on)
    for on in {on for row in REWRITES if not row.top for on in row.on}
}


class _Rewriter(ast.NodeTransformer):
    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self.changed = False

    def visit(self, node: ast.AST) -> ast.AST:
        if not node._fields:  # an operator: nothing inside it
            return node
        super().generic_visit(node)
        for row in _INNER.get(type(node), ()):
            if isinstance(node, row.on):  # an earlier row may have changed its type
                new = row.apply(node, self._names)
                assert isinstance(new, ast.AST)
                self.changed |= new is not node
                node = new
        return node


@dataclass(frozen=True)
class RewrittenStatement:
    """A statement after all rewrites; `line` is the line of the statement that it came from."""

    node: ast.stmt
    line: int
    changed: bool


def rewrite(tree: ast.Module, names: ToolNames) -> list[RewrittenStatement]:
    """Return the statements of `tree` after all rewrites. Raises RecursionError for a tree that is
    too deep.
    """
    return [piece for node in tree.body for piece in _pieces(node, names)]


def _pieces(node: ast.stmt, names: ToolNames) -> Iterator[RewrittenStatement]:
    line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    rewriter = _Rewriter(names)
    statements: list[ast.AST] = [rewriter.visit(node)]
    changed = rewriter.changed
    for row in _TOP if type(statements[0]) in _TOP_TYPES else ():
        if any(isinstance(old, row.on) for old in statements):
            step: list[ast.AST] = []
            for old in statements:
                new = row.apply(old, names) if isinstance(old, row.on) else old
                changed |= new is not old
                step += new if isinstance(new, list) else [new]
            statements = step
    for new in statements:
        assert isinstance(new, ast.stmt)
        yield RewrittenStatement(ast.fix_missing_locations(new) if changed else new, line, changed)
