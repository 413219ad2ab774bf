"""Which calls an expression of a cell makes, in their order. Runs inside the kernel. Knows only syntax.

Stops: nothing.
"""

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeGuard

from sandbox.inside.inserted import (
    AHEAD,
    BEGIN,
    ONLY_READS,
    TAKEN,
    TASK,
    Batch,
    Called,
    taken_ahead,
)
from sandbox.inside.syntax import (
    READING,
    SYNTAX,
    VALUES,
    acts,
    become,
    of_asyncio,
    operands,
    take_at_once,
)

HARMLESS = frozenset(
    "print str repr int float bool len round abs list tuple dict set sorted zip enumerate range".split()
)
_OF_TEXTS = frozenset("strip lower upper title capitalize".split())
_TAKE_ALL = ("list", "tuple", "set", "sorted", "dict")
_SUSPENDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


class Events:
    """Of the cells of one kernel; comprehensions are rewritten on the way.

    `awaited` is the name of a function that makes a value awaitable. `plain` says whether no object of the
    kernel can run code of a program's own where it is only read.
    """

    def __init__(self, names: Callable[[], Collection[str]], awaited: str) -> None:
        self.names = names
        self.awaited = awaited
        self.sites = 0
        self.tools: frozenset[str] = frozenset()
        self.harmless: frozenset[str] = frozenset()
        self.bound: set[str] = set()
        self.plain = True

    def events(self, node: ast.expr, batch: Batch) -> Iterator[Called | None]:
        """The calls in `node` as they come, None where something else may happen between them."""
        match node:
            case ast.Constant() | ast.Lambda():
                return
            case ast.Name(id=name):
                if name not in self.bound:
                    yield None  # it may raise
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                yield from self.all(parts, batch or self.batch())
            case ast.Dict():
                batch = batch or self.batch()
                for key, value in zip(node.keys, node.values, strict=True):
                    yield from self.all([key, value] if key else [value], batch)
            case ast.Starred(value=value) | ast.FormattedValue(value=value, format_spec=None):
                yield from self.events(value, batch)
            case ast.Call():
                yield from self._call(node, batch)
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                yield None
                self.comprehension(node)
            case ast.Await() if called := self.awaited_call(node):
                yield from self._call(called, batch)
            case _:
                yield from self.all(operands(node), batch)
                reads = isinstance(node, (ast.BinOp, ast.Subscript)) and batch and self.plain
                if not (reads or isinstance(node, ast.JoinedStr) or self._may_fail(node, batch)):
                    yield None

    def _may_fail(self, node: ast.expr, batch: Batch) -> bool:
        """Whether an error is all that can come of it, which no call minds that only reads."""
        return batch == ONLY_READS and self.plain and not acts(node)

    def all(self, nodes: Sequence[ast.expr], batch: Batch) -> Iterator[Called | None]:
        for node in nodes:
            yield from self.events(node, batch)

    def _call(self, node: ast.Call, batch: Batch) -> Iterator[Called | None]:
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if self.is_tool(node):
            if not self.only_reading(node):
                yield from self.all(arguments, 0)
            yield Called(node, batch)
            return
        if task := self._given_to_a_task(node):
            yield from self.all([*task.args, *(keyword.value for keyword in task.keywords)], 0)
            become(task, TASK, [ast.Constant(task.lineno), task.func, *task.args], task.keywords)
            yield None
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        together = of_asyncio(node.func, "gather")
        harmless = name in self.harmless and self.plain
        if together or (harmless and name in _TAKE_ALL):
            take_at_once(node, starred=together)
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            yield from self.events(node.func.value, batch)
        yield from self.all(arguments, (batch or self.batch()) if together else batch)
        quiet = name == "print" or name == self.awaited or batch
        if not (together or of_asyncio(node.func, "sleep") or (harmless and quiet)):
            yield None

    def only_reading(self, call: ast.Call) -> bool:
        """Whether nothing happens while the arguments are evaluated."""
        return all(
            self.only_reads(node)
            for argument in (*call.args, *call.keywords)
            for node in ast.walk(argument)
        )

    def only_reads(self, node: ast.AST) -> bool:
        if not self.plain:
            return isinstance(node, VALUES + SYNTAX)
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in self.harmless and name != "print"
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in _OF_TEXTS
        return isinstance(node, VALUES + READING + SYNTAX)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        if not self.plain or any(
            (isinstance(inner, _SUSPENDING) and not self.awaited_call(inner))
            or getattr(inner, "is_async", 0)
            for inner in ast.walk(node)
        ):
            return
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        events = list(self.all(parts, 1))
        conditions = [test for generator in node.generators for test in generator.ifs]
        conditions += [generator.iter for generator in node.generators[1:]]
        group = [each for each in events if each is not None and self.only_reading(each.call)]
        if None in events or not group or any(map(self._acts, conditions)):
            return
        target, each = taken_ahead(node.generators, group)
        for called in group:
            become(called.call, AHEAD, [])
        node.generators = [ast.comprehension(target, ast.copy_location(each, node), [], 0)]

    def is_tool(self, node: ast.expr) -> TypeGuard[ast.Call]:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self.tools
        )

    def awaited_call(self, node: ast.AST) -> ast.Call | None:
        """The call of a tool, or of what stands for one, whose result is awaited."""
        match node:
            case ast.Await(value=ast.Call(func=ast.Name(id=name), args=[ast.Call() as call])):
                function = call.func
                there = isinstance(function, ast.Name) and function.id in (
                    *self.tools,
                    BEGIN,
                    TAKEN,
                )
                return call if name == self.awaited and there else None
        return None

    def _given_to_a_task(self, node: ast.Call) -> ast.Call | None:
        """The call of a tool that ``create_task`` and the like are given."""
        match node:
            case ast.Call(
                func=ast.Attribute(attr="create_task" | "ensure_future"), args=[given, *_]
            ):
                if isinstance(given, ast.Call) and of_asyncio(given.func, "sleep"):
                    given = given.args[-1]
                if self.is_tool(given):
                    node.args[0] = given
                    return given
        return None

    def _acts(self, node: ast.expr) -> bool:
        """Whether anything but a harmless function is called in it."""
        return any(
            isinstance(inner, ast.Call)
            and not (isinstance(inner.func, ast.Name) and inner.func.id in self.harmless)
            for inner in ast.walk(node)
        )

    def batch(self) -> Batch:
        self.sites += 1
        return self.sites
