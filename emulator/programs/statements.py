"""Rewrite statements so that an operation that inspects a placeholder pauses the program.

One rule for each kind of statement; the rules for expressions are in `expressions.py`. The program has no
``async``: `async_code` has removed it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TypeVar

from emulator.programs.calls import DEFERRED
from emulator.programs.expressions import ExpressionRewriter
from emulator.programs.handling import MARK
from emulator.programs.inspections import REFLECTION, Inspection
from emulator.programs.operands import (
    CHECKS,
    TEMPORARY,
    NotAnalyzable,
    call_of,
    inspection_of_target,
)
from emulator.programs.placeholder import BATCH, WAIT
from sandbox.engine import CHECK_PREFIX
from sandbox.parsing import walk

_RESERVED = (DEFERRED, TEMPORARY, CHECK_PREFIX, WAIT, BATCH)
_OPAQUE = (ast.ClassDef, ast.Match, ast.TryStar)

_INSPECTS: Mapping[type[ast.stmt], tuple[tuple[str, Inspection], ...]] = {
    ast.Expr: (("value", Inspection.NONE),),
    ast.While: (("test", Inspection.ITSELF),),
    ast.If: (("test", Inspection.ITSELF),),
    ast.Assert: (("test", Inspection.ITSELF), ("msg", Inspection.DEEP)),
    ast.Raise: (("exc", Inspection.DEEP), ("cause", Inspection.DEEP)),
    **dict.fromkeys((ast.Return, ast.AnnAssign, ast.Try, ast.Pass, ast.Break, ast.Continue), ()),
    **dict.fromkeys((ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal), ()),
}
"""How statements without a rule of their own inspect their expressions."""

_Expression = TypeVar("_Expression", bound=ast.expr)


class StatementRewriter(ExpressionRewriter):
    """Rewrites statements in place, and returns the statements that replace each."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        """Raises `NotAnalyzable` if the program could bypass the checks."""
        for node in walk(tree):
            name = node.id if isinstance(node, ast.Name) else ""
            reserved = name.startswith(_RESERVED) and not name.startswith(MARK)
            if isinstance(node, _OPAQUE) or name in REFLECTION or reserved:
                raise NotAnalyzable
            if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
                raise NotAnalyzable
        super().__init__(tree, tools)
        redefines_tools = bool(tools & self.facts.defined)
        if redefines_tools or self.facts.inspects_late or any(map(self._hides_pauses, walk(tree))):
            raise NotAnalyzable
        self._return_inspection = Inspection.NONE

    def _hides_pauses(self, node: ast.AST) -> bool:
        """Return True for code that may pause where an engine cannot, if the program may catch the
        engine's error."""
        if not self.facts.catches:
            return False
        if isinstance(node, ast.Lambda):
            names = [n for n in walk(node.body) if isinstance(n, ast.Name)]
            return any(
                name.id in self.facts.own or self.facts.needs_check(name, Inspection.DEEP)
                for name in names
            )
        return isinstance(node, ast.FunctionDef) and node.name in self.facts.callbacks

    # Statements

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [
            ast.copy_location(new, statement) if not hasattr(new, "lineno") else new
            for statement in statements
            for new in self._statement(statement)
        ]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Assign():
                inspection = max(map(inspection_of_target, node.targets))
                node.value = self.checked(node.value, inspection)
                node.targets = [self._target(target) for target in node.targets]
            case ast.AnnAssign(value=ast.expr() as value):
                node.value = self.checked(value, inspection_of_target(node.target))
                self._target(node.target)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.For():
                return self._loop(node)
            case ast.Return(value=ast.expr() as value):
                node.value = self.checked(value, self._return_inspection)
            case ast.Delete():
                node.targets = [self._target(target) for target in node.targets]
            case ast.With():
                for item in node.items:
                    item.context_expr = self.checked(item.context_expr, Inspection.DEEP)
                    item.optional_vars = item.optional_vars and self._target(item.optional_vars)
            case ast.FunctionDef():
                self._function(node)
                return [node]
            case _:
                for name, inspection in _inspections_of(node):
                    if (part := getattr(node, name)) is not None:
                        setattr(node, name, self.checked(part, inspection))
        self._blocks(node)
        return [node]

    def _blocks(self, node: ast.AST) -> None:
        for name in ("body", "orelse", "finalbody"):
            if inner := getattr(node, name, None):
                setattr(node, name, self.block(inner))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)

    def _function(self, node: ast.FunctionDef) -> None:
        node.decorator_list = [self.checked(each, Inspection.DEEP) for each in node.decorator_list]
        self.defaults(node.args)
        before = self.blocking_depth, self._return_inspection
        self.blocking_depth = int(node.name in self.facts.blocking)
        is_callback = node.name in self.facts.callbacks
        self._return_inspection = Inspection.DEEP if is_callback else Inspection.NONE
        node.body = self.block(node.body)
        self.blocking_depth, self._return_inspection = before

    def _loop(self, node: ast.For) -> list[ast.stmt]:
        unpacking: list[ast.stmt] = []
        target_inspection = inspection_of_target(node.target)
        if target_inspection is Inspection.NONE or self.has_tuple_items(node.iter, node.target):
            node.target = self._target(node.target)
        else:
            # Check each item before it is unpacked.
            name = self.temporary()
            item = call_of(CHECKS[target_inspection], ast.Name(name, ast.Load()))
            unpacking = [ast.Assign([self._target(node.target)], item)]
            node.target = ast.Name(name, ast.Store())
        node.iter = self.checked(node.iter, Inspection.ITEMS)
        self._blocks(node)
        node.body = [*(ast.copy_location(each, node) for each in unpacking), *node.body]
        return [node]

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        """``x += y`` inspects the old value of ``x`` as well, after ``y`` is evaluated."""
        before: list[ast.stmt] = []
        inspection = Inspection.DEEP if isinstance(node.op, ast.Mod) else Inspection.ITEMS
        if isinstance(node.target, ast.Subscript) and self.facts.is_active(node.target):
            raise NotAnalyzable
        old_value = deepcopy(node.target)
        old_value.ctx = ast.Load()
        if self.facts.needs_check(old_value, Inspection.ITSELF):
            value = node.value
            if self.facts.is_active(value) and self.facts.calls_only_tools(value):
                name = self.temporary()
                before.append(
                    ast.Assign([ast.Name(name, ast.Store())], self.checked(value, Inspection.NONE))
                )
                node.value = call_of(CHECKS[inspection], ast.Name(name, ast.Load()))
            else:
                node.value = self.checked(value, inspection)
            before.append(ast.Expr(self.checked(old_value, Inspection.ITSELF)))
        else:
            node.value = self.checked(node.value, inspection)
        target = self._target(node.target)
        assert isinstance(target, (ast.Name, ast.Attribute, ast.Subscript))
        node.target = target
        return [*before, node]

    def _target(self, node: _Expression) -> _Expression:
        match node:
            case ast.Subscript():
                node.value = self.checked(node.value, Inspection.ITSELF)
                node.slice = self._index(node.slice)
            case ast.Attribute():
                node.value = self.checked(node.value, Inspection.ITSELF)
            case ast.Tuple() | ast.List():
                node.elts = [self._target(part) for part in node.elts]
            case ast.Starred():
                node.value = self._target(node.value)
        return node


def _inspections_of(node: ast.stmt) -> Sequence[tuple[str, Inspection]]:
    if type(node) not in _INSPECTS:
        raise NotAnalyzable
    return _INSPECTS[type(node)]
