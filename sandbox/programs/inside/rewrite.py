"""Rewrite what CPython does without asking a value, so that a run notices it.

| in the program | becomes |
|---|---|
| ``a is b`` | ``_arrived_(a) is _arrived_(b)`` |
| ``match a:`` | ``match _arrived_deep_(a):`` |
| ``await a`` | ``await _awaitable_(a)`` |
| ``f"{a:>9} b"`` | ``_text_((a, -1, ">9"), " b")`` |
| ``re.search(p, a)``, ``"".join(a)`` | ``_attribute_(re, "search")(p, a)``, ``_attribute_("", "join")(a)`` |
| ``s % (a, b)`` | ``_percent_(s, (a, b))`` |
| ``d[a]`` | ``_item_(d, a)`` |
| ``[f(a), g(b)]``, ``gather(f(a))`` | ``_together_(_begin_(1), [f(a), g(b)])``, ... |
| ``except E:`` | its first line is ``_caught_()`` |
| ``print(a["b"])`` | ``print(_quiet_(lambda: a["b"]))`` |
| ``return a`` outside functions | ``raise _Returned_(a)`` |

No pass asks where a value comes from.
"""

from __future__ import annotations
import __future__

import ast
import warnings
from types import CodeType
from typing import Any

from sandbox.programs.inside.asking import NOTICED
from sandbox.programs.inside.places import FILE, Places, called_name

_PURE = frozenset(
    "len round str int float sum min max sorted repr abs get upper lower strip title join items keys values"
    " format split replace isoformat".split()
)
"""Functions that do nothing but compute."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])
_AWAITS = 0x80
"""inspect.CO_COROUTINE."""
_ANNOTATIONS = __future__.annotations.compiler_flag
"""The one future import that changes how Python 3 compiles later statements."""


class _Rewrite(ast.NodeTransformer):
    def __init__(self, places: Places) -> None:
        self._places = places
        self._scopes: list[type] = []
        """The functions and classes around the current node."""

    def _call(self, name: str, at: ast.AST, *arguments: Any) -> ast.Call:
        function = ast.copy_location(ast.Name(name, ast.Load()), at)
        return ast.copy_location(ast.Call(function, list(arguments), []), at)

    def visit(self, node: ast.AST) -> Any:
        site, depth = self._places.site(node), len(self._scopes)
        if isinstance(node, _FUNCTIONS | ast.ClassDef):
            self._scopes.append(type(node))
        visited = super().visit(node)
        del self._scopes[depth:]
        if not site:
            return visited
        begin = self._call("_begin_", node, ast.Constant(site))
        return self._call("_together_", node, begin, visited)

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        if self._scopes:
            return node
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Raise(self._call("_Returned_", node, value)), node)

    def visit_Await(self, node: ast.Await) -> Any:
        self.generic_visit(node)
        node.value = self._call("_awaitable_", node.value, node.value)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        self.generic_visit(node)
        node.subject = self._call("_arrived_deep_", node.subject, node.subject)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            node.left = self._call("_arrived_", node.left, node.left)
            node.comparators = [self._call("_arrived_", one, one) for one in node.comparators]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Tuple | ast.Dict):
            return self._call("_percent_", node, node.left, node.right)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr not in NOTICED:
            return node
        return self._call("_attribute_", node, node.value, ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or isinstance(
            node.slice, ast.Constant | ast.Slice | ast.Tuple
        ):
            return node
        return self._call("_item_", node, node.value, node.slice)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return self._call("_text_", node, *map(self._part, node.values))

    def _part(self, part: ast.expr) -> ast.expr:
        if not isinstance(part, ast.FormattedValue):
            return part
        spec = self.visit(part.format_spec) if part.format_spec else ast.Constant("")
        items = [self.visit(part.value), ast.Constant(part.conversion), spec]
        return ast.copy_location(ast.Tuple(items, ast.Load()), part)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        self.generic_visit(node)
        caught = ast.Expr(self._call("_caught_", node.body[0]))
        node.body.insert(0, ast.copy_location(caught, node.body[0]))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        is_print = isinstance(node.func, ast.Name) and node.func.id == "print" and not node.keywords
        is_print &= self._scopes[-1:] != [ast.ClassDef]  # a lambda does not see its names
        quiet = [is_print and _is_pure(one) for one in node.args]
        self.generic_visit(node)
        node.args = [
            self._call("_quiet_", one, ast.copy_location(ast.Lambda(_NO_ARGUMENTS, one), one))
            if is_quiet
            else one
            for one, is_quiet in zip(node.args, quiet, strict=True)
        ]
        return node


def _is_pure(node: ast.AST) -> bool:
    """Return True if later lines cannot notice that part of the expression was skipped."""
    if isinstance(node, ast.Constant | ast.Name):
        return False  # nothing to skip
    acts = (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Starred)
    return not any(
        isinstance(part, acts) or (isinstance(part, ast.Call) and called_name(part) not in _PURE)
        for part in ast.walk(node)
    )


class Compiler:
    """Compiles the statements of one program, each alone. A future import is for all after it."""

    def __init__(self) -> None:
        self.places = Places()
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def compile(self, source: str, first_line: int) -> tuple[CodeType | None, CodeType | None]:
        """A statement's code, and the code of the expression that ends it, if any. Adds its `places`.

        Raises SyntaxError, ValueError, RecursionError, MemoryError.
        """
        tree = ast.increment_lineno(ast.parse(source), first_line - 1)
        self.places.read(tree)
        tree = ast.fix_missing_locations(_Rewrite(self.places).visit(tree))
        *_, last = tree.body or [None]
        value = tree.body.pop() if isinstance(last, ast.Expr) else None
        statements = self._compile(tree, "exec") if tree.body else None
        if statements is not None:
            self._flags |= statements.co_flags & _ANNOTATIONS
        return statements, self._compile(ast.Expression(value.value), "eval") if value else None

    def _compile(self, tree: Any, mode: str) -> CodeType:
        with warnings.catch_warnings(action="ignore"):  # its text is the program's output
            code: CodeType = compile(tree, FILE, mode, flags=self._flags, dont_inherit=True)
        return code


def awaits(code: CodeType) -> bool:
    """Return True if the code has a top-level ``await``."""
    return bool(code.co_flags & _AWAITS)
