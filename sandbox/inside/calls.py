"""Find the calls of a notebook's cell that do not need each other's results. Runs inside the kernel.

A cell runs once, as Python has it, and its calls wait. But where a call is reached, the arguments of calls
that come after it may be known already: those of one display (``[f(1), g(2)]``), of a comprehension, of
``asyncio.gather``, of one argument list, and of simple statements in a row. They are told to the host with
the first, which decides how many leave together. The rest of the cell does not change:

* the first call of a group, ``f(1)``, becomes ``_begin_(site, _later_(f, 1), lambda: _later_(g, 2))``, and
  ``g(2)`` becomes ``_taken_(site)``, which gives its result or raises its error where the call stands;
* ``[f(c) for c in names]`` becomes ``[_ahead_() for (c,), _ahead_ in _each_(((c,), (_later_(f, c),)) for c in
  names)]``, and so do loops of which no part can see what another has done (`loops`);
* what is awaited may wait beside the calls of other tasks (`tasks`): ``await f(1)`` becomes ``await
  _asked_(f, 1)``, and so on; ``create_task(f(1))`` becomes ``create_task(_task_(f, 1))``.

(``_later_`` is also given the batch and the line.) A group ends where anything else may be called or changed,
or may raise; within a display or comprehension, reading a result does not end it. Knows only syntax.

Stops: nothing. What a hostile cell makes of this are calls that it could have made anyway.
"""

import ast
import builtins
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy

from sandbox.inside.events import HARMLESS, Events
from sandbox.inside.inserted import (
    AHEAD,
    ASKED,
    BEGIN,
    BEGIN_ASKED,
    ONLY_READS,
    TAKEN,
    TAKEN_ASKED,
    Batch,
    Called,
    ahead,
    later,
    taken_ahead,
)
from sandbox.inside.loops import effects_of
from sandbox.inside.syntax import become, names_bound


class Groups(Events):
    """Rewrites the cells of one kernel."""

    def __init__(self, names: Callable[[], Collection[str]], awaited: str) -> None:
        super().__init__(names, awaited)
        self._group: list[Called] = []
        self._stored: set[str] = set()

    def rewrite(self, tree: ast.Module, taken: Collection[str], *, plain: bool) -> ast.Module:
        """`tree`, changed in place. `taken` are the names of variables that there are."""
        stored = names_bound(tree)
        self.tools = frozenset(self.names()) - stored
        self.harmless = HARMLESS.difference(stored, taken) | {self.awaited}
        self.bound = stored.union(taken, dir(builtins))
        self.plain = plain and not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
        if any(isinstance(node, ast.Name) and node.id in self.tools for node in ast.walk(tree)):
            self._block(tree.body)
            for node in ast.walk(tree):
                if isinstance(node, ast.Await) and (call := self.awaited_call(node)):
                    self._wait_beside_others(call)
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
                looped = isinstance(node, ast.For) and self._loop(node)
                if not looped and not isinstance(node, ast.ClassDef):
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
        for event in self.events(node, batch):
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
        self.sites += 1
        first, *others = (later(each) for each in group)
        lambdas = [ahead(each) for each in others]
        become(group[0].call, BEGIN, [ast.Constant(self.sites), first, *lambdas])
        for each in group[1:]:
            become(each.call, TAKEN, [ast.Constant(self.sites)])

    def _known(self, call: ast.Call) -> bool:
        """Whether the arguments are the same before the group as where the call stands."""
        return self.only_reading(call) and not any(
            isinstance(node, ast.Name) and node.id in self._stored for node in ast.walk(call)
        )

    def _loop(self, node: ast.For) -> bool:
        """Take the calls of all rounds ahead, where each round would make them whatever the others do."""
        effects = effects_of(node, self.harmless)
        if effects is None or not self.plain:
            return False
        bare = all(map(self.is_tool, effects.values))
        batch = 0 if effects.certain and bare else ONLY_READS
        events = [event for value in effects.values for event in self.events(value, batch)]
        group = [each for each in events if each is not None and self.only_reading(each.call)]
        read = {
            inner.id
            for each in group
            for argument in (*each.call.args, *each.call.keywords)
            for inner in ast.walk(argument)
            if isinstance(inner, ast.Name)
        }
        if None in events or not group or len(group) < len(events) or read & effects.stored:
            return False
        round_ = ast.comprehension(deepcopy(node.target), node.iter, [], 0)
        read = {name for name in read if name in self.bound and name not in self.harmless}
        target, each = taken_ahead([round_], group, sorted(read), sorted(effects.changed))
        for called in group:
            become(called.call, AHEAD, [])
        node.target, node.iter = target, ast.copy_location(each, node.iter)
        return True

    def _wait_beside_others(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Name)
        match call.func.id:
            case "_begin_":
                call.func.id = BEGIN_ASKED
            case "_taken_":
                call.func.id = TAKEN_ASKED
            case _:
                what = [ast.Constant(call.lineno), call.func, *call.args]
                become(call, ASKED, what, call.keywords)
