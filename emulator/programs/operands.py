"""Rewrite operands: evaluate all of them before any is inspected, and inspect each through a check function.

`inspections.py` says which operations inspect what, `facts.py` which values need a check.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from emulator.programs.facts import Facts
from emulator.programs.inspections import Inspection

TEMPORARY = "_value_"
CHECKS = {
    Inspection.ITSELF: "_check",
    Inspection.ITEMS: "_check_items",
    Inspection.DEEP: "_check_deep",
}

_Node = TypeVar("_Node", bound=ast.AST)


class NotAnalyzable(Exception):
    """The program uses something that the analysis does not cover: it runs unchanged and waits at each
    call."""


class OperandRewriter:
    """Rewrites expressions in place, and returns the expression that replaces each."""

    RULES: ClassVar[dict[type[ast.expr], Callable[[Any, Any], ast.expr]]]
    """How each kind of expression is rewritten."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.facts = Facts(tree, tools)
        self.blocking_depth = 0
        """The number of enclosing functions, lambdas and calls in which tool calls are not deferred."""
        self.iterable_depth = 0
        """The number of enclosing iterables of comprehensions, in which Python allows no ``:=``."""
        self._temporaries = 0

    def checked(self, node: ast.expr, inspection: Inspection) -> ast.expr:
        """The rewritten expression, with a check if an operation that inspects its value may find a
        placeholder."""
        needs_check = self.facts.needs_check(node, inspection)
        rewritten = self.rewrite(node)
        return at(call_of(CHECKS[inspection], rewritten), node) if needs_check else rewritten

    def rewrite(self, node: ast.expr) -> ast.expr:
        rule = self.RULES.get(type(node))
        if rule is None:
            raise NotAnalyzable
        rewritten: ast.expr = rule(self, node)
        return rewritten

    def operation(self, node: ast.expr, slots: Sequence[Slot]) -> ast.expr:
        """``node`` with its operands evaluated in the order of ``slots``, before any is inspected.

        An operand that needs a check before a later operand with calls is stored in a temporary variable
        first: these calls can still be made although the check stops the run. Where Python
        allows no temporary variables, each operand is checked at once, and such calls wait for a later run.
        """
        values = [slot.value for slot in slots]
        last = max((n for n, value in enumerate(values) if self.facts.is_active(value)), default=0)
        early = [s for s in slots[:last] if self.facts.needs_check(s.value, s.inspection)]
        no_temporaries = self.iterable_depth > 0 or any(slot.is_starred for slot in slots)
        if no_temporaries and any(slot.inspection is Inspection.DEEP for slot in early):
            raise NotAnalyzable  # a later operand may put a placeholder into what has been checked
        if no_temporaries or not early:
            for slot in slots:
                slot.value = self.checked(slot.value, slot.inspection)
            return node
        stored: list[ast.expr] = []
        for slot in slots[: last + 1]:
            if isinstance(slot.value, ast.Constant):
                continue
            needs_check = self.facts.needs_check(slot.value, slot.inspection)
            name = self.temporary()
            value = self.rewrite(slot.value)
            stored.append(at(ast.NamedExpr(ast.Name(name, ast.Store()), value), slot.value))
            load = at(ast.Name(name, ast.Load()), node)
            slot.value = call_of(CHECKS[slot.inspection], load) if needs_check else load
        for slot in slots[last + 1 :]:
            slot.value = self.checked(slot.value, slot.inspection)
        return at(ast.BoolOp(ast.And(), [ast.Tuple(stored, ast.Load()), node]), node)

    def temporary(self) -> str:
        self._temporaries += 1
        return f"{TEMPORARY}{self._temporaries}"

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """While this is open, tool calls keep their names and are not deferred."""
        self.blocking_depth += 1
        yield
        self.blocking_depth -= 1


class Slot:
    """The place of an operand in its operation, and how the operation inspects it."""

    def __init__(
        self, holder: Any, key: str | int, inspection: Inspection, *, is_starred: bool = False
    ) -> None:
        self._holder, self._key = holder, key
        self.inspection = inspection
        self.is_starred = is_starred

    @property
    def value(self) -> ast.expr:
        if isinstance(self._key, int):
            return self._holder[self._key]  # type: ignore[no-any-return]
        return getattr(self._holder, self._key)  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: ast.expr) -> None:
        if isinstance(self._key, int):
            self._holder[self._key] = value
        else:
            setattr(self._holder, self._key, value)


def inspection_of_target(target: ast.expr) -> Inspection:
    """How an assignment to ``target`` inspects the value."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            plain = all(
                inspection_of_target(p.value if isinstance(p, ast.Starred) else p)
                is Inspection.NONE
                for p in parts
            )
            return Inspection.ITEMS if plain else Inspection.DEEP
        case ast.Attribute():
            return Inspection.DEEP
    return Inspection.NONE


def call_of(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def at(node: _Node, place: ast.AST) -> _Node:
    return ast.copy_location(node, place)
