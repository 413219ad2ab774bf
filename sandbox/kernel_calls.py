"""Find the calls of a notebook's cell that do not need each other's results. Runs inside the kernel.

A cell runs once, as Python has it, and its calls wait. But where a call is reached, the arguments of calls
that come after it may be known already: those of one display (``[f(1), g(2)]``), of a comprehension, of
``asyncio.gather``, of one argument list, and of simple statements in a row. They are told to the host with
the first, which decides how many leave together. The rest of the cell does not change:

* the first call of a group, ``f(1)``, becomes ``_begin_(site, _later_(f, 1), lambda: _later_(g, 2))``, and
  ``g(2)`` becomes ``_taken_(site)``, which gives its result or raises its error where the call stands;
* ``[f(c) for c in names]`` becomes ``[_ahead_() for (c,), _ahead_ in _each_(((c,), (_later_(f, c),)) for c in
  names)]``.

(``_later_`` is also given the batch and the line.) A group ends where anything else may be called or changed,
or may raise; within a display or comprehension, reading a result does not end it. Knows only syntax.

Stops: nothing. What a hostile cell makes of this are calls that it could have made anyway.
"""

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from sandbox.kernel_syntax import (
    READING,
    SYNTAX,
    VALUES,
    become,
    names_bound,
    of_asyncio,
    operands,
    take_at_once,
)

BEGIN, TAKEN, LATER, EACH = "_begin_", "_taken_", "_later_", "_each_"
AHEAD = "_ahead_"
"""A variable of the functions that are put in, by which they are told from the cell's own."""

_HARMLESS = frozenset(
    "print str repr int float bool len round abs list tuple dict set sorted zip enumerate range".split()
)
_OF_TEXTS = frozenset("strip lower upper title capitalize".split())
_TAKE_ALL = ("list", "tuple", "set", "sorted", "dict")
_SUSPENDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)

Batch = int
"""Calls of the same one are of one display or comprehension; those of 0 are of none."""


@dataclass(frozen=True)
class _Called:
    call: ast.Call
    batch: Batch


class Groups:
    """Rewrites the cells of one kernel.

    `awaited` is the name of a function that makes a value awaitable. `plain` says whether no object of the
    kernel can run code of a program's own where it is only read.
    """

    def __init__(self, names: Callable[[], Collection[str]], awaited: str) -> None:
        self._names = names
        self._awaited = awaited
        self._sites = 0
        self._tools: frozenset[str] = frozenset()
        self._harmless: frozenset[str] = frozenset()
        self._bound: set[str] = set()
        self._plain = True
        self._group: list[_Called] = []
        self._stored: set[str] = set()

    def rewrite(self, tree: ast.Module, taken: Collection[str], *, plain: bool) -> ast.Module:
        """`tree`, changed in place. `taken` are the names of variables that there are."""
        stored = names_bound(tree)
        self._tools = frozenset(self._names()) - stored
        self._harmless = _HARMLESS.difference(stored, taken) | {self._awaited}
        self._bound = stored.union(taken, dir(builtins))
        self._plain = plain and not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
        if any(isinstance(node, ast.Name) and node.id in self._tools for node in ast.walk(tree)):
            self._block(tree.body)
            ast.fix_missing_locations(tree)
        return tree

    # Statements

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        self._end()
        for statement in statements:
            self._statement(statement)
        self._end()

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case (
                ast.Expr(value=value)
                | ast.Assign(value=value)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
            ):
                self._take(value, 0)
            case ast.Return(value=ast.expr() as value):
                self._take(value, 0)
                self._end()
            case _:
                self._end()
                for name in ("test", "iter", "value"):
                    inner = getattr(node, name, None)
                    if isinstance(inner, ast.expr) and not isinstance(node, ast.While):
                        self._take(inner, 0)
                        self._end()
                if not isinstance(node, ast.ClassDef):
                    self._blocks(node)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self._stored.add(target.id)
                else:
                    self._end()

    def _blocks(self, node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(node, field, None):
                self._block(inner)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(part.body)

    # Groups

    def _take(self, node: ast.expr, batch: Batch) -> None:
        for event in self._events(node, batch):
            if event is None:
                self._end()
            elif self._group and not self._known(event.call):
                self._end()
                self._group.append(event)
            else:
                self._group.append(event)

    def _end(self) -> None:
        group, self._group = self._group, []
        self._stored = set()
        if len(group) < 2:
            return
        self._sites += 1
        first, *others = (_later(each) for each in group)
        lambdas = [_ahead(each) for each in others]
        become(group[0].call, BEGIN, [ast.Constant(self._sites), first, *lambdas])
        for each in group[1:]:
            become(each.call, TAKEN, [ast.Constant(self._sites)])

    def _known(self, call: ast.Call) -> bool:
        """Whether the arguments are the same before the group as where the call stands."""
        return self._only_reading(call) and not any(
            isinstance(node, ast.Name) and node.id in self._stored for node in ast.walk(call)
        )

    def _only_reading(self, call: ast.Call) -> bool:
        """Whether nothing happens while the arguments are evaluated."""
        return all(
            self._only_reads(node)
            for argument in (*call.args, *call.keywords)
            for node in ast.walk(argument)
        )

    def _only_reads(self, node: ast.AST) -> bool:
        if not self._plain:
            return isinstance(node, VALUES + SYNTAX)
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in self._harmless and name != "print"
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in _OF_TEXTS
        return isinstance(node, VALUES + READING + SYNTAX)

    # Expressions

    def _events(self, node: ast.expr, batch: Batch) -> Iterator[_Called | None]:
        """The calls in `node` as they come, None where something else may happen between them."""
        match node:
            case ast.Constant() | ast.Lambda():
                return
            case ast.Name(id=name):
                if name not in self._bound:
                    yield None  # it may raise
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                yield from self._all(parts, batch or self._batch())
            case ast.Dict():
                batch = batch or self._batch()
                for key, value in zip(node.keys, node.values, strict=True):
                    yield from self._all([key, value] if key else [value], batch)
            case ast.Starred(value=value) | ast.FormattedValue(value=value, format_spec=None):
                yield from self._events(value, batch)
            case ast.Call():
                yield from self._call(node, batch)
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                yield None
                self._comprehension(node)
            case _:
                yield from self._all(operands(node), batch)
                reads = isinstance(node, (ast.BinOp, ast.Subscript)) and batch and self._plain
                if not (reads or isinstance(node, ast.JoinedStr)):
                    yield None

    def _all(self, nodes: Sequence[ast.expr], batch: Batch) -> Iterator[_Called | None]:
        for node in nodes:
            yield from self._events(node, batch)

    def _call(self, node: ast.Call, batch: Batch) -> Iterator[_Called | None]:
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Name) and node.func.id in self._tools:
            if not self._only_reading(node):
                yield from self._all(arguments, 0)
            yield _Called(node, batch)
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        together = of_asyncio(node.func, "gather")
        harmless = name in self._harmless and self._plain
        if together or (harmless and name in _TAKE_ALL):
            take_at_once(node, starred=together)
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            yield from self._events(node.func.value, batch)
        yield from self._all(arguments, (batch or self._batch()) if together else batch)
        quiet = name == "print" or name == self._awaited or batch
        if not (together or of_asyncio(node.func, "sleep") or (harmless and quiet)):
            yield None

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        if not self._plain or any(
            isinstance(inner, _SUSPENDING) or getattr(inner, "is_async", 0)
            for inner in ast.walk(node)
        ):
            return
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        events = list(self._all(parts, 1))
        conditions = [test for generator in node.generators for test in generator.ifs]
        conditions += [generator.iter for generator in node.generators[1:]]
        group = [each for each in events if each is not None and self._only_reading(each.call)]
        if None in events or not group or any(map(self._acts, conditions)):
            return
        names = sorted(
            {
                inner.id
                for generator in node.generators
                for inner in ast.walk(generator.target)
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
            }
        )
        later = ast.Tuple([_later(each) for each in group], ast.Load())
        kept = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        ahead = ast.GeneratorExp(ast.Tuple([kept, later], ast.Load()), node.generators)
        target = ast.Tuple(
            [
                ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store()),
                ast.Name(AHEAD, ast.Store()),
            ],
            ast.Store(),
        )
        each_item = ast.Call(ast.Name(EACH, ast.Load()), [ahead], [])
        for each in group:
            become(each.call, AHEAD, [])
        node.generators = [ast.comprehension(target, ast.copy_location(each_item, node), [], 0)]

    def _acts(self, node: ast.expr) -> bool:
        """Whether anything but a harmless function is called in it."""
        return any(
            isinstance(inner, ast.Call)
            and not (isinstance(inner.func, ast.Name) and inner.func.id in self._harmless)
            for inner in ast.walk(node)
        )

    def _batch(self) -> Batch:
        self._sites += 1
        return self._sites


def _later(called: _Called) -> ast.Call:
    """The call as a value: which function, and what it is given."""
    call = called.call
    what = [ast.Constant(called.batch), ast.Constant(call.lineno), call.func, *call.args]
    made = ast.Call(ast.Name(LATER, ast.Load()), what, call.keywords)
    return ast.copy_location(made, call)


def _ahead(call: ast.Call) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(AHEAD)],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[ast.Constant(None)],
    )
    return ast.copy_location(ast.Lambda(arguments, call), call)
