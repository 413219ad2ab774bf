"""Decide which calls of a program may go out before earlier results are known. Pure AST, host side.

A tool call leaves the program and its result comes back a request later. Until then its value is
unknown. `prepare` rewrites a program so that an engine which can only pause at calls keeps the law
*no call may depend on a value that no tool returned*:

* a call whose result is only stored (``x = f()``, ``xs.append(f())``, ``[f(c) for c in cs]``) is
  renamed to ``_later_3_f``: the driver may go on past it with a placeholder. 3 is its *site*, the
  number of the store;
* before each statement that reads a name which may hold a placeholder (`taint.py` says which) stands
  ``_wait(3)``, where the driver stops while a call of one of these sites is unknown;
* a ``print`` of such names runs only when all is known: what a suspended run prints is thrown away;
* before a statement whose display or comprehension makes several calls stands ``_together(3)``: what it calls
  was written as simultaneous (`order.py`);
* every other call keeps its name: the driver stops at it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from emulator.programs.batches import name_batches
from emulator.programs.scopes import restore, separate
from emulator.programs.taint import Flow, leaves, makes_a_batch, own_expressions
from emulator.programs.uses import read_as_text
from sandbox.parsing import line_map, parse

_LATER = "_later_"
WAIT = "_wait"
READY = "_ready"
TOGETHER = "_together"

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Prepared:
    """A rewritten program and where its lines came from."""

    source: str
    lines: dict[int, int]
    """Line of ``source`` -> line of the program as it was."""
    later: Mapping[str, tuple[int, str]]
    """Name of a call that may be passed -> its site and its tool's name."""
    texts: Collection[tuple[int, str]] = frozenset()
    """The calls whose results the program treats as text: line of the program, and the tool's name."""


def prepare(tree: ast.Module, tools: Collection[str]) -> Prepared:
    """Rewrite ``tree`` (which is consumed) for a driver that can pause at the calls of ``tools``."""
    name_batches(tree, tools)
    separate(tree)
    texts = read_as_text(tree, tools)
    rewriter = _Rewriter(Flow(tree, frozenset(tools)))
    rewritten = ast.fix_missing_locations(ast.Module(rewriter.block(tree.body), []))
    restore(rewritten)
    source = ast.unparse(rewritten)
    return Prepared(source, line_map(rewritten, parse(source)), rewriter.later, texts)


class _Rewriter:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._printed = 0
        self.later: dict[str, tuple[int, str]] = {}

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(statement, field, None):
                setattr(statement, field, self.block(inner))
        for handler in getattr(statement, "handlers", ()):
            handler.body = self.block(handler.body)
        if self._flow.opaque:
            return [statement]
        if printed := self._print(statement):
            return printed
        read = self._reads(statement)
        before: list[ast.stmt] = []
        if (store := self._flow.store(statement)) is not None:
            if makes_a_batch(store[1], self._flow.is_call):
                before = [_at(ast.Expr(_call(TOGETHER, [self._flow.site(statement)])), statement)]
            for leaf in leaves(store[1]):
                self._defer(leaf, self._flow.site(statement))
        sites = self._flow.reaching(read)
        if not sites:
            return [*before, statement]
        if isinstance(statement, ast.While):
            # The test is read again on each round, so the wait stands inside it; it returns None.
            test = ast.BoolOp(ast.Or(), [_call(WAIT, sites), statement.test])
            statement.test = _at(test, statement.test)
            return [statement]
        return [_at(ast.Expr(_call(WAIT, sites)), statement), *before, statement]

    def _reads(self, statement: ast.stmt) -> set[str]:
        """The names that a statement's own expressions read."""
        read = _loaded(own_expressions(statement))
        store = self._flow.store(statement)
        if store is None:
            return read
        # The receiver of an append or of a subscript store is written, not read.
        receivers, value = store
        return (read - receivers) | _loaded(_evaluated(statement, value))

    def _defer(self, leaf: ast.expr, site: int) -> None:
        call = leaf.value if isinstance(leaf, ast.Await) else leaf
        match call:
            case ast.Call(func=ast.Name() as name) if self._flow.is_call(call):
                later = f"{_LATER}{site}_{name.id}"
                self.later[later] = (site, name.id)
                name.id = later

    # Prints

    def _print(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """A print that cannot fail, with its calls taken out in front of it; None for all else."""
        match statement:
            case ast.Expr(ast.Call(ast.Name("print"), arguments, keywords) as call):
                pass
            case _:
                return None
        if (
            self._flow.prints_are_seen
            or "print" in self._flow.stored
            or not all(map(_is_harmless, keywords))
        ):
            return None
        if not self._can_be_delayed(arguments):
            return None
        calls: list[ast.stmt] = []
        call.args = [self._without_calls(argument, calls, statement) for argument in arguments]
        names = sorted(_loaded(call.args))
        sites = sorted({*map(self._flow.site, calls), *self._flow.reaching(names)})
        if not sites:
            return [statement]
        # A name that is not defined must fail here as it would in the print.
        touched = ast.Expr(ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load()))
        guarded = ast.If(
            _call(READY, sites), [statement], [_at(touched, statement)] if names else []
        )
        return [*calls, _at(guarded, statement)]

    def _can_be_delayed(self, arguments: Sequence[ast.expr]) -> bool:
        """Only names, constants, f-strings of these and plain calls, no call behind a name.

        A call behind a name that turns out to be undefined must not be made.
        """
        named = False
        for part in _printed(arguments):
            if isinstance(part, ast.Name):
                named = True
            elif not isinstance(part, ast.Constant) and (named or not self._is_simple_call(part)):
                return False
        return True

    def _is_simple_call(self, node: ast.expr) -> bool:
        """Whether a tool call's arguments neither wait nor fail, and so may be evaluated earlier."""
        if not isinstance(node, ast.Call) or not self._flow.is_call(node):
            return False
        inner = [*node.args, *(word.value for word in node.keywords)]
        return not any(
            isinstance(part, (ast.Call, ast.NamedExpr, ast.Lambda, ast.Subscript, ast.BinOp))
            or (isinstance(part, ast.Name) and self._flow.reaching([part.id]))
            for argument in inner
            for part in ast.walk(argument)
        )

    def _without_calls(self, node: ast.expr, calls: list[ast.stmt], place: ast.stmt) -> ast.expr:
        """``node`` with a variable for each call, which is assigned in ``calls``."""
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    part.value = self._without_calls(part.value, calls, place)
            return node
        if not isinstance(node, ast.Call):
            return node
        self._printed += 1
        name = f"_printed_{self._printed}"
        assigned = _at(ast.Assign([ast.Name(name, ast.Store())], node), place)
        self._defer(node, self._flow.site(assigned))
        calls.append(assigned)
        return ast.Name(name, ast.Load())


def _printed(arguments: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """The arguments of a print in the order of evaluation, with the parts of f-strings."""
    for argument in arguments:
        if not isinstance(argument, ast.JoinedStr):
            yield argument
            continue
        for part in argument.values:
            if isinstance(part, ast.FormattedValue) and part.format_spec is None:
                yield from _printed([part.value])
            else:
                yield part


def _is_harmless(keyword: ast.keyword) -> bool:
    value = keyword.value
    return (
        keyword.arg in ("sep", "end")
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )


def _loaded(nodes: Sequence[ast.AST] | Iterator[ast.AST]) -> set[str]:
    return {
        inner.id
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def _evaluated(statement: ast.stmt, value: ast.expr) -> Iterator[ast.AST]:
    """What a store evaluates: its value and the indices of its targets."""
    yield value
    for target in getattr(statement, "targets", ()):
        if isinstance(target, ast.Subscript):
            yield target.slice


def _call(name: str, sites: Sequence[int]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(site) for site in sites], [])


def _at(node: _Node, place: ast.AST) -> _Node:
    return ast.copy_location(node, place)
