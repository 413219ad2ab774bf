"""Rewrite a program so that it can run on before the results of its calls are known.

A call whose result is not known gives a placeholder (`unknown.py`), and the program goes on with that. Each
operation that looks at a value which may be one (`looks.py` says which do) is given the value through a
function that pauses where it is one; then the run is over. So:

* a call ``f(x)`` becomes ``_look_got(_later_3_f(x))``: the driver may give it a placeholder. 3 is the *site*
  of a display or comprehension whose calls were written as simultaneous (`order.py`), 0 stands for none;
* ``a + b`` becomes ``_look(a) + _look(b)``, ``sorted(a)`` becomes ``sorted(_look_deep(a))``. Where a later
  operand may call or change something, all are evaluated first: ``((_seen_1 := a), (_seen_2 := f())) and
  _look(_seen_1) + _look(_seen_2)``;
* ``[f(1), g(2)]`` becomes ``_together(3) or [...]``;
* a ``print`` looks at nothing: what a suspended run prints is thrown away. Not so in a program that can see
  what it has printed;
* code whose caller is not the program's own (lambdas, generators, functions given away) waits at each of its
  calls, and looks deep into what it gives.

Programs that could reach behind this (``exec``, ``locals``, classes) are left as they are: they wait at each
call.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from emulator.programs.calls import LATER
from emulator.programs.displays import take_at_once
from emulator.programs.expressions import Expressions
from emulator.programs.looks import REFLECTION, Look
from emulator.programs.operands import LOOKS, SEEN, CannotTell, called, look_of_storing
from emulator.programs.scopes import restore, separate
from emulator.programs.top_level_return import leave_at_returns
from emulator.programs.unknown import TOGETHER, WAIT, definitions
from emulator.programs.uses import read_as_text
from sandbox.engine import LOOK
from sandbox.parsing import line_map, parse, walk

_RESERVED = (LATER, SEEN, LOOK, WAIT, TOGETHER)
_OPAQUE = (ast.ClassDef, ast.Match, ast.TryStar)

_LOOKS_AT: Mapping[type[ast.stmt], tuple[tuple[str, Look], ...]] = {
    ast.Expr: (("value", Look.NONE),),
    ast.While: (("test", Look.ITSELF),),
    ast.If: (("test", Look.ITSELF),),
    ast.Assert: (("test", Look.ITSELF), ("msg", Look.DEEP)),
    ast.Raise: (("exc", Look.DEEP), ("cause", Look.DEEP)),
    **dict.fromkeys((ast.Return, ast.AnnAssign, ast.Try, ast.Pass, ast.Break, ast.Continue), ()),
    **dict.fromkeys((ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal), ()),
}
"""How the other statements look at their expressions."""

_Expression = TypeVar("_Expression", bound=ast.expr)


@dataclass(frozen=True)
class Prepared:
    """A rewritten program and where its lines came from."""

    source: str
    lines: dict[int, int]
    """Line of ``source`` -> line of the program as it was."""
    later: Mapping[str, tuple[int, str]]
    """Name of a call that may be passed -> its site and its tool's name."""
    texts: Mapping[tuple[int, str], bool]
    """The calls whose results the program treats as text: line of the program, and the tool's name. True
    where it parses the text."""

    def line(self, line: int) -> int:
        """The program's own line for one of ``source``; a statement's inner lines are its first."""
        before = bisect_right(self._begun, line)
        return self.lines[self._begun[before - 1]] if before else 0

    @cached_property
    def _begun(self) -> list[int]:
        return sorted(self.lines)

    @cached_property
    def preamble(self) -> str:
        """What has to run before ``source``."""
        return definitions(self.source) if self.later else ""


@lru_cache(maxsize=64)  # a program is run again on each of its turns
def prepare(program: str, tools: frozenset[str]) -> Prepared:
    """Rewrite ``program`` for a driver that can pause at the calls of ``tools``."""
    tree, later = _read(program, tools), {}
    texts = read_as_text(tree, tools)
    try:
        rewriter = _Statements(tree, tools)
        tree.body = rewriter.block(tree.body)
        later = rewriter.later
    except (CannotTell, RecursionError):
        pass
    if not later:  # nothing can be unknown while the program runs
        tree = _read(program, tools)
    restore(tree)
    source = ast.unparse(tree)
    return Prepared(source, line_map(tree, parse(source)), later, texts)


def _read(program: str, tools: frozenset[str]) -> ast.Module:
    tree = parse(program)
    if "return" in program:
        leave_at_returns(tree, tools)
    if "for" in program:
        take_at_once(tree)
    separate(tree)
    return tree


class _Statements(Expressions):
    """Statements are changed in place, and given back as they are to be."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        for node in walk(tree):
            name = node.id if isinstance(node, ast.Name) else ""
            if isinstance(node, _OPAQUE) or name in REFLECTION or name.startswith(_RESERVED):
                raise CannotTell
            if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
                raise CannotTell
        super().__init__(tree, tools)
        blind = tools & self.facts.defined or self.facts.looks_late
        if blind or any(map(self._hides_pauses, walk(tree))):
            raise CannotTell
        self._returned = Look.NONE

    def _hides_pauses(self, node: ast.AST) -> bool:
        """Whether a look may pause where an engine cannot, and the program may catch the error of that."""
        if not self.facts.catches:
            return False
        if isinstance(node, ast.Lambda):
            read = [n for n in walk(node.body) if isinstance(n, ast.Name)]
            return any(
                name.id in self.facts.own or self.facts.needs(name, Look.DEEP) for name in read
            )
        return (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name in self.facts.given_away
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
                look = max(map(look_of_storing, node.targets))
                node.value = self.seen(node.value, look)
                node.targets = [self._target(target) for target in node.targets]
            case ast.AnnAssign(value=ast.expr() as value):
                node.value = self.seen(value, look_of_storing(node.target))
                self._target(node.target)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.For() | ast.AsyncFor():
                return self._loop(node)
            case ast.Return(value=ast.expr() as value):
                node.value = self.seen(value, self._returned)
            case ast.Delete():
                node.targets = [self._target(target) for target in node.targets]
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    item.context_expr = self.seen(item.context_expr, Look.DEEP)
                    item.optional_vars = item.optional_vars and self._target(item.optional_vars)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
                return [node]
            case _:
                for name, look in _looks_at(node):
                    if (part := getattr(node, name)) is not None:
                        setattr(node, name, self.seen(part, look))
        self._blocks(node)
        return [node]

    def _blocks(self, node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(node, field, None):
                setattr(node, field, self.block(inner))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        node.decorator_list = [self.seen(each, Look.DEEP) for each in node.decorator_list]
        self.defaults(node.args)
        before = self.plain, self._returned
        self.plain = int(node.name in self.facts.waiting)
        self._returned = Look.DEEP if node.name in self.facts.given_away else Look.NONE
        node.body = self.block(node.body)
        self.plain, self._returned = before

    def _loop(self, node: ast.For | ast.AsyncFor) -> list[ast.stmt]:
        look = Look.DEEP if isinstance(node, ast.AsyncFor) else Look.ITEMS
        taken: list[ast.stmt] = []
        if look_of_storing(node.target) is not Look.NONE and not self.gives_tuples(
            node.iter, node.target
        ):
            # Each item is looked at as it is unpacked.
            name = self.temporary()
            item = called(LOOKS[look_of_storing(node.target)], ast.Name(name, ast.Load()))
            taken = [ast.Assign([self._target(node.target)], item)]
            node.target = ast.Name(name, ast.Store())
        else:
            node.target = self._target(node.target)
        node.iter = self.seen(node.iter, look)
        self._blocks(node)
        node.body = [*(ast.copy_location(each, node) for each in taken), *node.body]
        return [node]

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        """The value that there was is looked at too."""
        before: list[ast.stmt] = []
        look = Look.DEEP if isinstance(node.op, ast.Mod) else Look.ITEMS
        if isinstance(node.target, ast.Subscript) and self.facts.is_active(node.target):
            raise CannotTell
        there = deepcopy(node.target)
        there.ctx = ast.Load()
        if self.facts.needs(there, Look.ITSELF):
            value = node.value
            if self.facts.is_active(value) and self.facts.calls_only_tools(value):
                name = self.temporary()
                before.append(
                    ast.Assign([ast.Name(name, ast.Store())], self.seen(value, Look.NONE))
                )
                node.value = called(LOOKS[look], ast.Name(name, ast.Load()))
            else:
                node.value = self.seen(value, look)
            before.append(ast.Expr(self.seen(there, Look.ITSELF)))
        else:
            node.value = self.seen(node.value, look)
        target = self._target(node.target)
        assert isinstance(target, (ast.Name, ast.Attribute, ast.Subscript))
        node.target = target
        return [*before, node]

    def _target(self, node: _Expression) -> _Expression:
        match node:
            case ast.Subscript():
                node.value = self.seen(node.value, Look.ITSELF)
                node.slice = self._index(node.slice)
            case ast.Attribute():
                node.value = self.seen(node.value, Look.ITSELF)
            case ast.Tuple() | ast.List():
                node.elts = [self._target(part) for part in node.elts]
            case ast.Starred():
                node.value = self._target(node.value)
        return node


def _looks_at(node: ast.stmt) -> Sequence[tuple[str, Look]]:
    if type(node) not in _LOOKS_AT:
        raise CannotTell
    return _LOOKS_AT[type(node)]
