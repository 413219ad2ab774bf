"""Which names of a program may hold a result that is not known yet. Pure AST; rewrites nothing.

The answer holds over all orders of execution, as a points-to analysis' would: coarse, and wrong only
towards "may". Programs that could read or write names behind its back (``exec``, ``locals``, classes with
an ``append`` of their own, attribute stores) are called opaque.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

_BUILTINS = frozenset(dir(builtins))
REFLECTION = frozenset(
    "exec eval compile locals globals vars dir setattr getattr delattr __import__ __builtins__ "
    "bytearray array".split()  # the last two look at what is appended
)
# Builtins that give no part of their arguments back.
_PLAIN = frozenset("print len str repr int float bool abs round isinstance ord chr".split())
# With these a program can see what it has printed: then no print is put off.
_OBSERVERS = frozenset(
    "redirect_stdout redirect_stderr StringIO BytesIO TextIOWrapper stdout stderr __stdout__ capsys "
    "capture_output logging".split()
)
# An attribute store or a class may run the program's own code on a placeholder.
_OPAQUE = (ast.ClassDef, ast.Match, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Of these alone it is certain that they are new: `b = a` and `b = g(a)` make two names of one object.
_NEW = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp, ast.Constant, ast.JoinedStr)
# Stands for whatever is raised: it is caught elsewhere, under another name.
_RAISED = "<raised>"


class _Reach(IntEnum):
    """How a name may reach a placeholder; a higher one says more."""

    NONE = 0
    HOLDER = 1
    RECEIVER = 2
    ORIGIN = 3


class _Sharing:
    """Who may share objects with whom.

    An object that takes in a placeholder is held by a *receiver*. Names are `linked` when they may share
    objects (``b = a[0]``, ``for b in a``, arguments of the program's own functions), and one `holds`
    another when that was put, unread, into a new or growing container. From a receiver, taint goes to
    all that is linked, since its object may have come out of there, and from such a name also back to
    what it holds; from a mere holder it goes onward only. So the ``c`` in
    ``xs.append({"city": c, "weather": f(c)})`` stays clean.
    """

    def __init__(self) -> None:
        self._linked: dict[str, set[str]] = defaultdict(set)
        self._holders: dict[str, set[str]] = defaultdict(set)
        self._holds: dict[str, set[str]] = defaultdict(set)

    def link(self, names: Iterable[str]) -> None:
        first, *others = [*names] or [""]
        for name in others:
            self._linked[first].add(name)
            self._linked[name].add(first)

    def hold(self, holders: Iterable[str], names: Iterable[str]) -> None:
        for name in names:
            for holder in holders:
                self._holders[name].add(holder)
                self._holds[holder].add(name)

    def reached_from(self, receivers: Iterable[str]) -> frozenset[str]:
        """The names through which a placeholder may be reached that these receivers took in."""
        reached: dict[str, _Reach] = {}
        waiting = [(name, _Reach.RECEIVER) for name in receivers]
        while waiting:
            name, reach = waiting.pop()
            if reached.get(name, _Reach.NONE) >= reach:
                continue
            reached[name] = reach
            onward = _Reach.HOLDER if reach is _Reach.HOLDER else _Reach.ORIGIN
            waiting.extend((other, onward) for other in self._linked[name])
            waiting.extend((other, _Reach.HOLDER) for other in self._holders[name])
            if reach is _Reach.ORIGIN:
                waiting.extend((other, _Reach.ORIGIN) for other in self._holds[name])
        return frozenset(reached)


class Flow:
    """What is known of one program: its tool calls, its stores, and who may reach a placeholder.

    Stores of calls are numbered: a statement waits only for the calls of those *sites* whose
    placeholders it may read.
    """

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self._tools = tools
        nodes = list(ast.walk(tree))
        self.stored = {
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
        self.opaque = any(map(_is_opaque, nodes)) or bool(tools & self.stored)
        self.prints_are_seen = any(map(_sees_prints, nodes)) or _is_value("print", nodes)
        self._eager = _stores_amid_expressions(tree)
        self._sites: dict[int, int] = {}
        self._reached: dict[int, frozenset[str]] = {}
        if not self.opaque:
            self._number(nodes)

    def site(self, statement: ast.stmt) -> int:
        """The number of a store whose calls may be passed; a statement of our own gets a new one."""
        return self._sites.setdefault(id(statement), len(self._sites) + 1)

    def reaching(self, names: Iterable[str]) -> list[int]:
        """The sites whose placeholders may be reached through any of ``names``."""
        wanted = set(names)
        return sorted(site for site, reached in self._reached.items() if reached & wanted)

    def _number(self, nodes: Iterable[ast.AST]) -> None:
        sharing = _Sharing()
        receivers: dict[int, set[str]] = {}
        for node in nodes:
            if isinstance(node, ast.ExceptHandler) and node.name:
                sharing.link([_RAISED, node.name])
            elif isinstance(node, ast.Raise):
                sharing.link([_RAISED, *self._names(node)])
            elif isinstance(node, _SCOPES):
                sharing.link([node.name, *self._names(*_interface(node))])
            elif isinstance(node, ast.stmt):
                self._share(sharing, node)
                store = self.store(node)
                if store is not None and any(map(self.is_call, leaves(store[1]))):
                    receivers[self.site(node)] = store[0]
        self._reached = {site: sharing.reached_from(names) for site, names in receivers.items()}

    def _share(self, sharing: _Sharing, statement: ast.stmt) -> None:
        store = self.store(statement)
        if store is None:
            sharing.link(self._names(*own_expressions(statement)))
            return
        targets, value = store
        if len(getattr(statement, "targets", ())) > 1:
            sharing.link(sorted(targets))
        sharing.hold(targets, self._names(*leaves(value, keys=True)))
        for generators in _generators(value):
            sharing.link(self._names(*generators))

    def _names(self, *nodes: ast.AST) -> list[str]:
        """The variables whose objects may be shared through ``nodes``.

        Not those in the arguments of tool calls, which are copied out, nor those of which only a
        number, a text or a truth is made.
        """
        found = []
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if self.is_call(node) or self._is_plain(node):
                continue
            if isinstance(node, ast.Name):
                known = node.id in self._modules or (
                    node.id in _BUILTINS and node.id not in self.stored
                )
                if not known:
                    found.append(node.id)
            waiting.extend(ast.iter_child_nodes(node))
        return found

    def _is_plain(self, node: ast.AST) -> bool:
        """Whether the value is a number, a text or a truth, and nothing is changed on the way to it."""
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id in _PLAIN - self.stored):
                return False
        elif not isinstance(node, (ast.Compare, ast.JoinedStr)):
            return False
        return not any(
            isinstance(inner, (ast.NamedExpr, ast.Lambda, ast.Yield, ast.Await))
            or (
                isinstance(inner, ast.Call)
                and not self.is_call(inner)
                and not self._is_plain(inner)
            )
            for child in ast.iter_child_nodes(node)
            for inner in ast.walk(child)
        )

    def is_call(self, node: ast.AST) -> bool:
        node = node.value if isinstance(node, ast.Await) else node
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._tools
        )

    def store(self, statement: ast.stmt) -> tuple[set[str], ast.expr] | None:
        """The names and the value of a statement that stores its value without looking at it."""
        if id(statement) in self._eager:
            return None
        targets: list[ast.expr]
        match statement:
            case ast.Expr(
                value=ast.Call(ast.Attribute(ast.Name(name), "append"), [value], keywords=[])
            ):
                return {name}, value
            case ast.Expr(value=value) if self.is_call(value):
                return set(), value
            case ast.Expr(value=ast.List() | ast.Tuple() | ast.Dict() | ast.ListComp() as value):
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
        if not self.is_call(value) and not isinstance(value, _NEW):
            return None
        return names, value


def leaves(value: ast.expr, *, keys: bool = False) -> Iterator[ast.expr]:
    """The expressions that end up, unread, in a display; the value itself when it is none.

    Keys are read, since they are hashed; they are told only with ``keys``.
    """
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield from leaves(part, keys=keys)
        case ast.Dict(keys=[*names], values=parts) if all(names):
            if keys:
                yield from (name for name in names if name is not None)
            for part in parts:
                yield from leaves(part, keys=keys)
        case ast.ListComp(elt=part):
            yield from leaves(part, keys=keys)
        case ast.DictComp(key=key, value=part):
            if keys:
                yield key
            yield from leaves(part, keys=keys)
        case _:
            yield value


def makes_a_batch(value: ast.expr, is_call: Callable[[ast.AST], bool]) -> bool:
    """Whether a stored value makes calls that were written as simultaneous."""
    comprehends = any(isinstance(node, (ast.ListComp, ast.DictComp)) for node in _shown(value))
    calls = sum(1 for leaf in leaves(value) if is_call(leaf))
    return calls > 1 or (calls == 1 and comprehends)


def _shown(value: ast.expr) -> Iterator[ast.expr]:
    """A display and those that stand, unread, in it."""
    yield value
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _shown(part)


def own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement itself, without those of the statements in its blocks."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler):
            yield from ([child.type] if child.type else [])
        elif not isinstance(child, ast.stmt):
            yield child


def _sees_prints(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _OBSERVERS
        case ast.alias(name=name):
            return bool(_OBSERVERS & {*name.split(".")})
    return False


def _is_value(name: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether a function is used otherwise than to be called."""
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return any(
        isinstance(node, ast.Name) and node.id == name and id(node) not in called for node in nodes
    )


def _stores_amid_expressions(tree: ast.Module) -> frozenset[int]:
    """The statements of functions that may run in the middle of an expression, by their ids.

    What such a function stores may be read by the rest of the expression, with no place to wait between:
    ``h() + stored[0]``. Called as a whole statement, or as its whole value, a function is at the end of it.
    """
    functions: dict[str, list[ast.FunctionDef]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions[node.name].append(node)
    if not functions:
        return frozenset()
    at_the_end = {id(call.func) for node in ast.walk(tree) for call in _last_calls(node)}
    waiting = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in functions and id(node) not in at_the_end
    ]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached or name not in functions:
            continue
        reached.add(name)
        waiting += [
            n.id for body in functions[name] for n in ast.walk(body) if isinstance(n, ast.Name)
        ]
    return frozenset(
        id(node)
        for name in reached
        for body in functions[name]
        for node in ast.walk(body)
        if isinstance(node, ast.stmt)
    )


def _last_calls(node: ast.AST) -> Iterator[ast.Call]:
    """The call after which a statement evaluates nothing more."""
    value: ast.AST | None = None
    match node:
        case ast.Expr(value=ast.Call(ast.Name("print"), [ast.Call() as only], [])):
            value = only
        case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.Return():
            value = node.value
        case ast.For():
            value = node.iter
        case ast.If() | ast.While():
            value = node.test
    match value:
        case ast.ListComp(elt=ast.Call() as call, generators=[each]) if not each.ifs:
            own = {name.id for name in ast.walk(each.target) if isinstance(name, ast.Name)}
            read = {n.id for n in ast.walk(call) if isinstance(n, ast.Name) and n is not call.func}
            value = call if read <= own else None
    if isinstance(value, ast.Call):
        yield value


def _is_opaque(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Load) or node.attr.startswith("__")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
        return len(node.args) != 1  # makes a class
    if isinstance(node, ast.Name):
        return node.id in REFLECTION
    if isinstance(node, ast.alias):
        return node.name in REFLECTION
    return isinstance(node, _OPAQUE)


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
