"""Decide which calls of a program may go out before earlier results are known. Pure AST, host side.

A tool call leaves the program and its result comes back a request later. Until then its value is
unknown. `prepare` rewrites a program so that an engine which can only pause at calls keeps the law
*no call may depend on a value that no tool returned*:

* a call whose result is only stored (``x = f()``, ``xs.append(f())``, ``[f(c) for c in cs]``) is
  renamed to ``_later_f``: the driver may go on past it with a placeholder;
* before each statement that reads a name which may hold a placeholder stands ``_wait()``, where the
  driver stops while anything is unknown;
* a ``print`` of such names runs only when all is known: what a suspended run prints is thrown away;
* every other call keeps its name: the driver stops at it.

Which names may hold a placeholder is decided over all orders of execution, as a points-to analysis
would; that is coarse and errs towards waiting.
Programs that could read names behind the analysis' back (``exec``, ``locals``, classes with their
own ``append``, attribute stores) wait at each call.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from sandbox.parsing import parse

LATER = "_later_"
WAIT = "_wait"
READY = "_ready"

_BUILTINS = frozenset(dir(builtins))
_REFLECTION = frozenset(
    ["exec", "eval", "compile", "locals", "globals", "vars", "dir", "setattr", "getattr", "delattr"]
) | {"__import__", "__builtins__"}
# Builtins that give no part of their arguments back.
_PLAIN = frozenset(
    [
        "print",
        "len",
        "str",
        "repr",
        "int",
        "float",
        "bool",
        "abs",
        "round",
        "isinstance",
        "ord",
        "chr",
    ]
)
# An attribute store or a class may run the program's own code on a placeholder; `global` names are fine.
_OPAQUE = (ast.ClassDef, ast.Match, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


_Node = TypeVar("_Node", bound=ast.AST)


class _Reach(IntEnum):
    """How a name may reach a placeholder; a higher one says more."""

    NONE = 0
    HOLDER = 1
    RECEIVER = 2
    ORIGIN = 3


@dataclass(frozen=True)
class Prepared:
    """A rewritten program and where its lines came from."""

    source: str
    lines: dict[int, int]
    """Line of ``source`` -> line of the program as it was."""


def prepare(tree: ast.Module, tools: Collection[str]) -> Prepared:
    """Rewrite ``tree`` (which is consumed) for a driver that can pause at the calls of ``tools``."""
    rewriter = _Rewriter(frozenset(tools), tree)
    rewritten = ast.fix_missing_locations(ast.Module(rewriter.block(tree.body), []))
    source = ast.unparse(rewritten)
    return Prepared(source, _line_map(rewritten, parse(source)))


def _line_map(before: ast.Module, after: ast.Module) -> dict[int, int]:
    """The two trees have the same shape; their line numbers differ."""
    return {
        new.lineno: old.lineno
        for old, new in zip(ast.walk(before), ast.walk(after), strict=False)
        if isinstance(old, ast.stmt) and isinstance(new, ast.stmt)
    }


class _Rewriter:
    def __init__(self, tools: frozenset[str], tree: ast.Module) -> None:
        self._tools = tools
        self._fresh = 0
        nodes = list(ast.walk(tree))
        self._stored = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        } | {node.name for node in nodes if isinstance(node, _SCOPES)}
        self._modules = {
            (alias.asname or alias.name).split(".")[0]
            for node in nodes
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        self._opaque = any(map(_is_opaque, nodes)) or bool(tools & self._stored)
        self._tainted = frozenset() if self._opaque else self._taint(tree)

    # Taint

    def _taint(self, tree: ast.Module) -> frozenset[str]:
        """The names through which a placeholder may be reached, over all orders of execution.

        An object that takes in a placeholder is held by a *receiver* ``r``. Names are `linked` when
        they may share objects (``b = a[0]``, ``for b in a``, arguments of the program's own functions),
        and `held` when one was put, unread, into a new or growing container of the other. From a
        receiver, taint goes to all that is linked, since ``r`` may have come out of there, and from
        such a name also back to what it holds; from a mere holder it goes onward only. So the ``c``
        in ``xs.append({"city": c, "weather": f(c)})`` stays clean.
        """
        linked: dict[str, set[str]] = defaultdict(set)
        holders: dict[str, set[str]] = defaultdict(set)
        holds: dict[str, set[str]] = defaultdict(set)
        receivers: set[str] = set()

        def link(names: list[str]) -> None:
            for name in names[1:]:
                linked[names[0]].add(name)
                linked[name].add(names[0])

        for statement in _statements(tree):
            if (store := self._store(statement)) is not None:
                targets, value = store
                leaves = list(self._leaves(value))
                if len(getattr(statement, "targets", ())) > 1:
                    link(sorted(targets))
                if any(map(self._is_call, leaves)):
                    receivers |= targets
                for name in self._names(*leaves):
                    holders[name] |= targets
                    for target in targets:
                        holds[target].add(name)
                for generators in _generators(value):
                    link(self._names(*generators))
            elif isinstance(statement, _SCOPES):
                link([statement.name, *self._names(*_interface(statement))])
            else:
                link(self._names(*_own_expressions(statement)))

        reached: dict[str, _Reach] = {}
        waiting = [(name, _Reach.RECEIVER) for name in receivers]
        while waiting:
            name, reach = waiting.pop()
            if reached.get(name, _Reach.NONE) >= reach:
                continue
            reached[name] = reach
            origin = _Reach.HOLDER if reach is _Reach.HOLDER else _Reach.ORIGIN
            waiting.extend((other, origin) for other in linked[name])
            waiting.extend((other, _Reach.HOLDER) for other in holders[name])
            if reach is _Reach.ORIGIN:
                waiting.extend((other, _Reach.ORIGIN) for other in holds[name])
        return frozenset(reached)

    def _names(self, *nodes: ast.AST) -> list[str]:
        """The variables whose objects may be shared through ``nodes``.

        Not those in the arguments of tool calls, which are copied out, nor those of which only a
        number, a text or a truth is made.
        """
        found = []
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if self._is_call(node) or self._is_plain(node):
                continue
            if isinstance(node, ast.Name):
                known = node.id in self._modules or (
                    node.id in _BUILTINS and node.id not in self._stored
                )
                if not known:
                    found.append(node.id)
            waiting.extend(ast.iter_child_nodes(node))
        return found

    def _is_plain(self, node: ast.AST) -> bool:
        """Whether the value is a number, a text or a truth, and nothing is changed on the way to it."""
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id in _PLAIN - self._stored):
                return False
        elif not isinstance(node, (ast.Compare, ast.JoinedStr)):
            return False
        return not any(
            isinstance(inner, (ast.NamedExpr, ast.Lambda, ast.Yield, ast.Await))
            or (
                isinstance(inner, ast.Call)
                and not self._is_call(inner)
                and not self._is_plain(inner)
            )
            for child in ast.iter_child_nodes(node)
            for inner in ast.walk(child)
        )

    # Shapes

    def _is_call(self, node: ast.AST) -> bool:
        node = node.value if isinstance(node, ast.Await) else node
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._tools
        )

    def _store(self, statement: ast.stmt) -> tuple[set[str], ast.expr] | None:
        """The names and the value of a statement that stores its value without looking at it."""
        targets: list[ast.expr]
        match statement:
            case ast.Expr(
                value=ast.Call(ast.Attribute(ast.Name(name), "append"), [value], keywords=[])
            ):
                return {name}, value
            case ast.Expr(value=value) if self._is_call(value):
                return set(), value
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=ast.expr() as annotated, value=ast.expr() as value):
                targets = [annotated]
            case _:
                return None
        unpackable = isinstance(value, (ast.List, ast.Tuple, ast.ListComp))
        names: set[str] = set()
        for target in targets:
            match target:
                case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
                    names.add(name)
                case ast.Tuple(elts=parts) | ast.List(elts=parts) if unpackable and all(
                    isinstance(part, ast.Name) for part in parts
                ):
                    names |= {part.id for part in parts if isinstance(part, ast.Name)}
                case _:
                    return None
        # Only a display is known to be new: `b = a` and `b = g(a)` make two names for one object.
        if not self._is_call(value) and not isinstance(value, _DISPLAYS):
            return None
        return names, value

    def _leaves(self, value: ast.expr) -> Iterator[ast.expr]:
        """The expressions that end up, unread, in a display; the value itself when it is none."""
        match value:
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                for part in parts:
                    yield from self._leaves(part)
            case ast.Dict(keys=keys, values=values) if all(keys):
                for key in keys:
                    if key is not None:
                        yield key
                for part in values:
                    yield from self._leaves(part)
            case ast.ListComp(elt=part):
                yield from self._leaves(part)
            case ast.DictComp(key=key, value=part):
                yield key
                yield from self._leaves(part)
            case _:
                yield value

    # Rewriting

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(statement, field, None):
                setattr(statement, field, self.block(inner))
        for handler in getattr(statement, "handlers", ()):
            handler.body = self.block(handler.body)
        if self._opaque:
            return [statement]
        if printed := self._print(statement):
            return printed
        read = self._reads(statement)
        self._defer(statement)
        if not read & self._tainted:
            return [statement]
        if isinstance(statement, ast.While):
            # The test is read again on each round, so the wait stands inside it; it returns None.
            statement.test = _at(
                ast.BoolOp(ast.Or(), [_call(WAIT), statement.test]), statement.test
            )
            return [statement]
        return [_at(ast.Expr(_call(WAIT)), statement), statement]

    def _reads(self, statement: ast.stmt) -> set[str]:
        store = self._store(statement)
        nodes = list(_own_expressions(statement))
        read = {
            node.id
            for own in nodes
            for node in ast.walk(own)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        if store is None:
            return read
        # The receiver of an append or of a subscript store is written, not read.
        receivers, value = store
        inside = {
            node.id
            for own in _value_expressions(statement, value)
            for node in ast.walk(own)
            if isinstance(node, ast.Name)
        }
        return (read - receivers) | (inside & read)

    def _defer(self, statement: ast.stmt) -> None:
        store = self._store(statement)
        if store is None:
            return
        for leaf in self._leaves(store[1]):
            self._rename(leaf)

    def _rename(self, leaf: ast.expr) -> None:
        call = leaf.value if isinstance(leaf, ast.Await) else leaf
        if self._is_call(call) and isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            call.func.id = LATER + call.func.id

    def _print(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """A print whose arguments cannot fail, with its calls taken out in front of it."""
        match statement:
            case ast.Expr(
                value=ast.Call(func=ast.Name(id="print"), args=arguments, keywords=keywords) as call
            ) if "print" not in self._stored:
                pass
            case _:
                return None
        if not all(map(self._is_printable, arguments)) or not all(
            word.arg in ("sep", "end") and isinstance(word.value, ast.Constant) for word in keywords
        ):
            return None
        calls: list[ast.stmt] = []

        class Hoist(ast.NodeTransformer):
            def visit_Call(_, node: ast.Call) -> ast.AST:  # ast's own spelling
                if not self._is_call(node):
                    return node
                self._fresh += 1
                name = f"_printed_{self._fresh}"
                self._rename(node)
                target = ast.Name(name, ast.Store())
                calls.append(_at(ast.Assign([target], node), statement))
                return ast.Name(name, ast.Load())

        arguments = [Hoist().visit(argument) for argument in arguments]
        names = [
            node
            for argument in arguments
            for node in ast.walk(argument)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ]
        if not calls and not {name.id for name in names} & self._tainted:
            return [statement]
        call.args = arguments
        # A name that is not defined must fail here as it would in the print.
        otherwise = ast.Expr(
            ast.Tuple([ast.Name(name.id, ast.Load()) for name in names], ast.Load())
        )
        guarded = ast.If(_call(READY), [statement], [_at(otherwise, statement)] if names else [])
        return [*calls, _at(guarded, statement)]

    def _is_printable(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant() | ast.Name():
                return True
            case ast.JoinedStr(values=parts):
                return all(
                    isinstance(part, ast.Constant)
                    or (
                        isinstance(part, ast.FormattedValue)
                        and part.format_spec is None
                        and self._is_printable(part.value)
                    )
                    for part in parts
                )
        return isinstance(node, ast.Call) and self._is_call(node) and not self._nested(node)

    def _nested(self, call: ast.Call) -> bool:
        """Whether arguments of ``call`` may wait or fail, so that taking it out would change the order."""
        inner = [*call.args, *(word.value for word in call.keywords)]
        return any(
            isinstance(node, (ast.Call, ast.NamedExpr, ast.Lambda, ast.Subscript, ast.BinOp))
            or (isinstance(node, ast.Name) and node.id in self._tainted)
            for argument in inner
            for node in ast.walk(argument)
        )


_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp, ast.Constant, ast.JoinedStr)


def _is_opaque(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Load) or node.attr.startswith("__")
    if isinstance(node, ast.Name):
        return node.id in _REFLECTION or node.id in (WAIT, READY) or node.id.startswith(LATER)
    return isinstance(node, _OPAQUE)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement itself, without those of the statements in its blocks."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler):
            yield from ([child.type] if child.type else [])
        elif not isinstance(child, ast.stmt):
            yield child


def _value_expressions(statement: ast.stmt, value: ast.expr) -> Iterator[ast.AST]:
    """What a store evaluates: its value and the indices of its targets."""
    yield value
    for target in getattr(statement, "targets", ()):
        if isinstance(target, ast.Subscript):
            yield target.slice


def _generators(value: ast.expr) -> Iterator[list[ast.comprehension]]:
    for node in ast.walk(value):
        if isinstance(node, (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)):
            yield node.generators


def _interface(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[ast.AST]:
    """Where values enter and leave a function: decorators, parameters, defaults, results."""
    yield from scope.decorator_list
    if not isinstance(scope, ast.ClassDef):
        for node in ast.walk(scope.args):
            if isinstance(node, ast.arg):
                yield ast.Name(node.arg, ast.Load())
        yield from (default for default in scope.args.defaults)
        yield from (default for default in scope.args.kw_defaults if default is not None)
    for node in ast.walk(scope):
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            yield node


def _call(name: str) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [], [])


def _at(node: _Node, place: ast.AST) -> _Node:
    return ast.copy_location(node, place)
