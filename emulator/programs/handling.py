"""Find where a program handles a failed result, and mark these places.

A failed result is *handled* when the program decides by it (a condition whose value comes from the result)
or reads a field of it (``result["error"]``, or with ``get``). A call inside a ``try`` with an
``except`` (or ``suppress``), whose result is handled in neither way, raises RuntimeError with the failure's
text. Storing, passing on, printing, formatting and changing the text of a result (``strip``, ``+``,
``splitlines``) do not handle it: the program would do the same with a result that is no failure.

`mark_handling` runs only for a program that has got a failed result. It wraps each such condition and
object in a call of a check function, which pauses the program under the name `HANDLED` with the number of
the place; `attempt` then counts the failures that may have come there as handled. Where a value comes from
is read from the syntax, by the names of variables. In doubt a result is not handled: the program ends
before its next call, and the model is asked.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emulator.programs.bindings import assignments, parameters
from emulator.programs.facts import Facts
from emulator.programs.operands import at, call_of
from emulator.programs.sites import Site, call_sites
from sandbox.engine import CHECK_PREFIX
from sandbox.parsing import children, walk

HANDLED = "_handled"
MARK = f"{CHECK_PREFIX}_handled_"

_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


@dataclass(frozen=True)
class Handling:
    """How a program handles failed results."""

    places: tuple[frozenset[Site], ...] = ()
    """The calls whose failures each marked place handles."""
    raising: frozenset[Site] = frozenset()
    """The calls that raise if they fail."""

    @property
    def preamble(self) -> str:
        """The check functions. One of them returns its argument."""
        return "".join(
            f"\n\ndef {MARK}{number}(value):\n    {HANDLED}({number})\n    return value\n"
            for number in range(len(self.places))
        )


def mark_handling(tree: ast.Module, tools: frozenset[str]) -> Handling:
    """Mark the places in ``tree`` where results are handled.

    Variables of different scopes must have different names (`scopes.separate`).
    """
    origins = _Origins(tree, tools)
    marker = _Marker(origins)
    marker.mark(tree)
    handled = frozenset().union(*marker.places)
    return Handling(tuple(marker.places), frozenset(_guarded_sites(tree, origins)) - handled)


class _Origins:
    """From which calls the value of an expression may come, whatever the order of execution."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.functions = {
            node.name: node for node in walk(tree) if isinstance(node, ast.FunctionDef)
        }
        self.sites = call_sites(tree, tools)
        self._containers: set[str] = set()
        self.callbacks = Facts(tree, tools).callbacks
        values: dict[str, list[ast.AST]] = defaultdict(list)
        for node in walk(tree):
            for name, value in self._flows(node):
                values[name].append(value)
        self._sites_of_name: dict[str, frozenset[Site]] = dict.fromkeys(values, frozenset())
        changed = True
        while changed:
            changed = False
            for name, sources in values.items():
                sites = frozenset().union(*map(self.of, sources))
                changed |= sites != self._sites_of_name[name]
                self._sites_of_name[name] = sites

    def of(self, node: ast.AST) -> frozenset[Site]:
        found: set[Site] = set()
        for inner in walk(node):
            if inner in self.sites:
                found.add(self.sites[inner])
            elif isinstance(inner, ast.Name):
                found |= self._sites_of_name.get(inner.id, frozenset())
        return frozenset(found)

    def of_condition(self, node: ast.expr) -> frozenset[Site]:
        """The calls that a condition decides by. The size of a list is no result."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.of_condition(inner)
            case ast.Name(id=name) if name in self._containers:
                return frozenset()
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]) if (
                name in self._containers
            ):
                return frozenset()
            case ast.Compare() | ast.BoolOp():
                parts = (part for part in children(node) if isinstance(part, ast.expr))
                return frozenset().union(*map(self.of_condition, parts))
        return self.of(node)

    def _flows(self, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        """The names that may get a value from an expression in ``node``."""
        for target, value in assignments(node):
            if value is not None:
                yield from self._stored(target, value)
        match node:
            case ast.Call():
                yield from self._passed(node)
            case ast.FunctionDef(name=name):
                for inner in walk(node):
                    if isinstance(inner, (ast.Return, ast.Yield)) and inner.value:
                        yield name, inner.value

    def _passed(self, call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
        given = [*call.args, *(word.value for word in call.keywords)]
        names: Iterable[str] = ()
        match call.func:
            case ast.Attribute(value=owner) if given:  # results.append(r)
                names = _names(owner)
                self._containers.update(names)
            case ast.Name(id=name) if name in self.functions:
                names = [each.arg for each in parameters(self.functions[name].args)]
        yield from ((name, value) for name in names for value in given)

    def _stored(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.AST]]:
        match target, value:
            case ast.Tuple(elts=[_, *parts]), ast.Call(func=ast.Name(id="enumerate")):
                target = ast.Tuple(parts)  # the number of an item is no result
        for name in _names(target):
            if isinstance(value, _DISPLAYS) or isinstance(target, ast.Subscript):
                self._containers.add(name)
            yield name, value


class _Marker:
    """Wraps conditions and objects in calls of check functions."""

    def __init__(self, origins: _Origins) -> None:
        self._origins = origins
        self.places: list[frozenset[Site]] = []

    def mark(self, node: ast.AST) -> None:
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                node.test = self._condition(node.test)
            case ast.Match():
                node.subject = self._condition(node.subject)
            case ast.BoolOp():
                node.values[:-1] = map(self._condition, node.values[:-1])
            case ast.comprehension():
                node.ifs = [*map(self._condition, node.ifs)]
            case ast.Subscript(slice=ast.Constant(value=str()), ctx=ast.Load()):
                node.value = self._wrapped(node.value, self._origins.of(node.value))
            case ast.Call(func=ast.Attribute(attr="get") as function, args=[_, *_]):
                function.value = self._wrapped(function.value, self._origins.of(function.value))
            case ast.Lambda() | ast.GeneratorExp():
                return  # engines cannot pause in code that other code calls
            case ast.FunctionDef() if node.name in self._origins.callbacks:
                return
        for child in children(node):
            self.mark(child)

    def _condition(self, node: ast.expr) -> ast.expr:
        return self._wrapped(node, self._origins.of_condition(node))

    def _wrapped(self, node: ast.expr, sites: frozenset[Site]) -> ast.expr:
        if not sites:
            return node
        if sites not in self.places:
            self.places.append(sites)
        return at(call_of(f"{MARK}{self.places.index(sites)}", node), node)


def _guarded_sites(tree: ast.Module, origins: _Origins) -> Iterator[Site]:
    """The calls inside a ``try`` with an ``except`` or inside ``suppress``, or in functions called there."""
    waiting: list[ast.AST] = []
    for node in walk(tree):
        match node:
            case ast.Try(handlers=[_, *_]) | ast.TryStar():
                guards = True
            case ast.With(items=items):
                guards = any(map(_suppresses, items))
            case _:
                continue
        if guards:
            waiting += node.body
    visited: set[str] = set()
    while waiting:
        for node in walk(waiting.pop()):
            if node in origins.sites:
                yield origins.sites[node]
            elif isinstance(node, ast.Name) and node.id in origins.functions.keys() - visited:
                visited.add(node.id)
                waiting += origins.functions[node.id].body


def _suppresses(item: ast.withitem) -> bool:
    match item.context_expr:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return True
    return False


def _names(target: ast.AST) -> Iterable[str]:
    """The variables that a target, or the owner of a method, names: ``d`` in ``d["k"].x``."""
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [name for part in parts for name in _names(part)]
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner):
            return _names(inner)
    return []
