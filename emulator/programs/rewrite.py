"""Rewrite a program so that it can run before the results of its calls are known.

A call whose result is unknown returns a placeholder (`placeholder.py`), and the program continues with
it. Each operation that inspects a value which may be a placeholder (`inspections.py`) gets the value
through a check function, which pauses the program if it is one; then the run is over. So:

* a call ``f(x)`` becomes ``_check_result(_deferred_3_f(x))``: the host may return a placeholder. 3 is the
  *site* of the display or comprehension that makes the call simultaneous with others (`order.py`), 0
  means none;
* ``a + b`` becomes ``_check(a) + _check(b)``, ``sorted(a)`` becomes ``sorted(_check_deep(a))``. If a
  later operand may call or assign something, all operands are evaluated first: ``((_value_1 := a),
  (_value_2 := f())) and _check(_value_1) + _check(_value_2)``;
* ``[f(1), g(2)]`` becomes ``_batch(3) or [...]``;
* ``print`` inspects nothing, because the output of a stopped run is thrown away, unless the program can
  read its own output;
* code that is called by other code (lambdas, generators, callbacks) waits at each tool call, and inspects
  deep what it returns.

A program that could bypass the checks (``exec``, ``locals``, classes) runs unchanged: it waits at each
tool call.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from emulator.programs.calls import DEFERRED
from emulator.programs.displays import expand_generators
from emulator.programs.expressions import ExpressionRewriter
from emulator.programs.inspections import REFLECTION, Inspection
from emulator.programs.operands import (
    CHECKS,
    TEMPORARY,
    NotAnalyzable,
    call_of,
    inspection_of_target,
)
from emulator.programs.placeholder import BATCH, PREAMBLE, WAIT
from emulator.programs.scopes import restore, separate
from emulator.programs.text_results import calls_read_as_text
from emulator.programs.top_level_return import rewrite_returns
from sandbox.engine import CHECK_PREFIX
from sandbox.parsing import line_map, parse, walk

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


@dataclass(frozen=True)
class RewrittenProgram:
    """A program in the form that engines run."""

    source: str
    lines: dict[int, int]
    """Line of ``source`` -> line of the original program."""
    deferred: Mapping[str, tuple[int, str]]
    """Name of a call that may return a placeholder -> its site and its tool's name."""
    texts: Mapping[tuple[int, str], bool]
    """The calls whose results the program uses as text (`text_results`), by original line and tool name."""

    def line(self, line: int) -> int:
        """The original line of a line of ``source``; inside a statement that of its first line."""
        before = bisect_right(self._statement_lines, line)
        return self.lines[self._statement_lines[before - 1]] if before else 0

    @cached_property
    def _statement_lines(self) -> list[int]:
        return sorted(self.lines)

    @property
    def preamble(self) -> str:
        """What must run before ``source``."""
        return PREAMBLE if self.deferred else ""


@lru_cache(maxsize=64)  # a program runs again in each of its turns
def rewrite(program: str, tools: frozenset[str]) -> RewrittenProgram:
    """Rewrite ``program`` for an engine that pauses at the calls of ``tools``."""
    tree = _parse(program, tools)
    deferred: Mapping[str, tuple[int, str]] = {}
    texts = calls_read_as_text(tree, tools)
    try:
        rewriter = _StatementRewriter(tree, tools)
        tree.body = rewriter.block(tree.body)
        deferred = rewriter.deferred
    except (NotAnalyzable, RecursionError):
        pass
    if not deferred:  # no value is ever unknown
        tree = _parse(program, tools)
    restore(tree)
    source = ast.unparse(tree)
    return RewrittenProgram(source, line_map(tree, parse(source)), deferred, texts)


def _parse(program: str, tools: frozenset[str]) -> ast.Module:
    tree = parse(program)
    rewrite_returns(tree, tools)
    expand_generators(tree)
    separate(tree)
    return tree


class _StatementRewriter(ExpressionRewriter):
    """Rewrites statements in place, and returns the statements that replace each."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        """Raises `NotAnalyzable` if the program could bypass the checks."""
        for node in walk(tree):
            name = node.id if isinstance(node, ast.Name) else ""
            if isinstance(node, _OPAQUE) or name in REFLECTION or name.startswith(_RESERVED):
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
        return (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name in self.facts.callbacks
        )

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
            case ast.For() | ast.AsyncFor():
                return self._loop(node)
            case ast.Return(value=ast.expr() as value):
                node.value = self.checked(value, self._return_inspection)
            case ast.Delete():
                node.targets = [self._target(target) for target in node.targets]
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    item.context_expr = self.checked(item.context_expr, Inspection.DEEP)
                    item.optional_vars = item.optional_vars and self._target(item.optional_vars)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
                return [node]
            case _:
                for name, inspection in _inspections_of(node):
                    if (part := getattr(node, name)) is not None:
                        setattr(node, name, self.checked(part, inspection))
        self._blocks(node)
        return [node]

    def _blocks(self, node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(node, field, None):
                setattr(node, field, self.block(inner))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        node.decorator_list = [self.checked(each, Inspection.DEEP) for each in node.decorator_list]
        self.defaults(node.args)
        before = self.blocking_depth, self._return_inspection
        self.blocking_depth = int(node.name in self.facts.blocking)
        is_callback = node.name in self.facts.callbacks
        self._return_inspection = Inspection.DEEP if is_callback else Inspection.NONE
        node.body = self.block(node.body)
        self.blocking_depth, self._return_inspection = before

    def _loop(self, node: ast.For | ast.AsyncFor) -> list[ast.stmt]:
        inspection = Inspection.DEEP if isinstance(node, ast.AsyncFor) else Inspection.ITEMS
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
        node.iter = self.checked(node.iter, inspection)
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
