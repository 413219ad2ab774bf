"""Rewrite operands so that all are evaluated before any is looked at, and looks go through checks.

`looks.py` says which operations look at what, `facts.py` what a value may be.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from emulator.programs.facts import Facts
from emulator.programs.looks import Look

SEEN = "_seen_"
LOOKS = {Look.ITSELF: "_look", Look.ITEMS: "_look_items", Look.DEEP: "_look_deep"}

_Node = TypeVar("_Node", bound=ast.AST)


class CannotTell(Exception):
    """The program is one of those that wait at each call."""


class Operands:
    """Expressions are changed in place, and given back as they are to be."""

    RULES: ClassVar[dict[type[ast.expr], Callable[[Any, Any], ast.expr]]]
    """How each kind of expression is rewritten."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.facts = Facts(tree, tools)
        self.plain = 0
        """In how many things we are in which a call keeps its name, and is waited for."""
        self.fixed = 0
        """In how many expressions we are in which no name may be given."""
        self._temporaries = 0

    def seen(self, node: ast.expr, look: Look) -> ast.expr:
        """The expression, rewritten, as an operation gets it that looks at its value."""
        needed = self.facts.needs(node, look)
        rewritten = self.visit(node)
        return at(called(LOOKS[look], rewritten), node) if needed else rewritten

    def visit(self, node: ast.expr) -> ast.expr:
        rule = self.RULES.get(type(node))
        if rule is None:
            raise CannotTell
        rewritten: ast.expr = rule(self, node)
        return rewritten

    def operands(self, node: ast.expr, slots: Sequence[Slot]) -> ast.expr:
        """``node``, whose operands are evaluated in the order of ``slots`` before any is looked at."""
        values = [slot.value for slot in slots]
        last = max((n for n, value in enumerate(values) if self.facts.is_active(value)), default=0)
        hazard = any(self.facts.needs(slot.value, slot.look) for slot in slots[:last])
        if not hazard:
            for slot in slots:
                slot.value = self.seen(slot.value, slot.look)
            return node
        if self.fixed or any(slot.is_starred for slot in slots):
            raise CannotTell
        first: list[ast.expr] = []
        for slot in slots[: last + 1]:
            if isinstance(slot.value, ast.Constant):
                continue
            needed = self.facts.needs(slot.value, slot.look)
            name = self.temporary()
            value = self.visit(slot.value)
            first.append(at(ast.NamedExpr(ast.Name(name, ast.Store()), value), slot.value))
            kept = at(ast.Name(name, ast.Load()), node)
            slot.value = called(LOOKS[slot.look], kept) if needed else kept
        for slot in slots[last + 1 :]:
            slot.value = self.seen(slot.value, slot.look)
        return at(ast.BoolOp(ast.And(), [ast.Tuple(first, ast.Load()), node]), node)

    def temporary(self) -> str:
        self._temporaries += 1
        return f"{SEEN}{self._temporaries}"

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.plain += 1
        yield
        self.plain -= 1


class Slot:
    """The place of an operand, and how the operation looks at it."""

    def __init__(
        self, holder: Any, key: str | int, look: Look, *, is_starred: bool = False
    ) -> None:
        self._holder, self._key = holder, key
        self.look = look
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


def look_of_storing(target: ast.expr) -> Look:
    """How storing to a target looks at the value."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            plain = all(
                look_of_storing(p.value if isinstance(p, ast.Starred) else p) is Look.NONE
                for p in parts
            )
            return Look.ITEMS if plain else Look.DEEP
        case ast.Attribute():
            return Look.DEEP
    return Look.NONE


def called(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def at(node: _Node, place: ast.AST) -> _Node:
    return ast.copy_location(node, place)
