"""What is known of a program's names and expressions: which may be, or hold, a placeholder. Pure AST.

The answers hold over all orders of execution, and are wrong only towards "may". Variables must have names of
their own (`scopes.separate`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from typing import Any

from emulator.programs.bindings import binds, gives, imports, last_name, sees_prints
from emulator.programs.given_away import reached
from emulator.programs.looks import (
    COLLECTIONS,
    EAGER,
    GIVE_ITEMS,
    LAZY_LOOKS,
    METHODS,
    PLAIN_MODULES,
    SCALARS,
    TEXTS,
    VIEWS,
    Look,
)
from sandbox.parsing import children, walk


class Facts:
    """What is known of one program."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.tools = tools
        # Whether a constant stands somewhere says nothing of names.
        nodes = [node for node in walk(tree) if type(node) is not ast.Constant]
        inner = [node for node in nodes if type(node) is not ast.Name]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        definitions = [
            node for node in inner if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        bound = {name for node in nodes for name in binds(node)}
        self.defined = bound | {each.name for each in definitions}
        self.catches = any(isinstance(node, ast.Try) for node in inner) or any(
            "suppress" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in nodes
        )
        self._modules = {name for node in inner for name in imports(node)}
        self._known = bound | self._modules | {each.name for each in definitions}
        called = {id(node.func) for node in inner if isinstance(node, ast.Call)}
        values = {
            node.id for node in names if isinstance(node.ctx, ast.Load) and id(node) not in called
        }
        decorated = {each.name for each in definitions if each.decorator_list}
        self.own = {each.name for each in definitions} - bound - self._modules - decorated
        self._coroutines = {
            each.name for each in definitions if isinstance(each, ast.AsyncFunctionDef)
        }
        self.given_away = {each.name for each in definitions} & (values | decorated)
        """Functions that may be called by others than the program's own statements."""
        self.waiting = reached(definitions, nodes, self.given_away, self._coroutines)
        """Functions that may run in the midst of an operation: their tool calls are waited for."""
        self.only_lists = self._are_plain(nodes)
        self.prints_are_seen = "print" in self._known | values or any(map(sees_prints, nodes))
        self._solid: set[str] = set()
        self._collections: set[str] = set()
        self._active = self._active_nodes(tree)
        self.looks_late = self._looks_late(inner)
        """Whether something of a library may look at an item while the program runs on."""
        self._settled = False
        self._cleanness: dict[int, bool] = {}
        """What `is_clean` has said of a node, once that is settled."""
        self._clean = self._clean_names(inner)
        self._settled = True
        self._solid = self._solid_names()
        self._collections = {
            name
            for name, found in self._values.items()
            if all(value is not None and self._is_collection(value) for value in found)
        }

    def _are_plain(self, nodes: Iterable[ast.AST]) -> bool:
        modules = {
            name.partition(".")[0]
            for node in nodes
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in (
                [each.name for each in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
        }
        return modules <= PLAIN_MODULES and not {"bytearray", "memoryview"} & {
            node.id for node in nodes if isinstance(node, ast.Name)
        }

    def _active_nodes(self, tree: ast.Module) -> set[int]:
        """The nodes in which something is called or changed, by their ids."""
        found: set[int] = set()
        waiting: list[tuple[ast.AST, tuple[Any, ...]]] = [(tree, ())]
        while waiting:
            node, above = waiting.pop()
            if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) or (
                isinstance(node, ast.Call) and self.builtin(node.func) not in SCALARS
            ):
                path: tuple[Any, ...] = (node, above)
                while path and id(path[0]) not in found:
                    found.add(id(path[0]))
                    path = path[1]
            # What a lambda does, it does later.
            path = () if isinstance(node, ast.Lambda) else (node, above)
            waiting += [(child, path) for child in children(node)]
        return found

    def _looks_late(self, nodes: Iterable[ast.AST]) -> bool:
        late: dict[int, ast.Call] = {}
        at_once: set[int] = set()
        for node in nodes:
            if isinstance(node, ast.Call):
                name = last_name(node.func)
                own = bool(node.args) and (
                    isinstance(node.args[0], ast.Lambda)
                    or (isinstance(node.args[0], ast.Name) and node.args[0].id in self.own)
                )
                if name in LAZY_LOOKS and name not in self.defined and not own:
                    late[id(node)] = node
                if name in EAGER and name not in self.defined:
                    at_once |= {id(argument) for argument in node.args}
        return not late.keys() <= at_once

    # Names and calls

    def is_tool(self, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self.tools
        )

    def builtin(self, node: ast.AST) -> str | None:
        """The builtin that a call's function is."""
        if isinstance(node, ast.Name) and node.id not in self._known and node.id in vars(builtins):
            return node.id
        return None

    def is_module(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._modules

    # Clean: can never hold a placeholder, whatever happens to it

    def _clean_names(self, nodes: Iterable[ast.AST]) -> set[str]:
        values: dict[str, list[ast.expr | None]] = {}
        for node in nodes:
            for name, value in gives(node):
                values.setdefault(name, []).append(None if "range" in self._known else value)
        self._values = values
        given = set(values)
        clean = {name for name, found in values.items() if None not in found}
        self._clean = clean | (self._modules | self.own) - given
        shrinking = True
        while shrinking:
            dirty = {
                name
                for name in clean
                if not all(value is not None and self.is_clean(value) for value in values[name])
            }
            clean -= dirty
            self._clean -= dirty
            shrinking = bool(dirty)
        return self._clean

    def _is_collection(self, value: ast.expr) -> bool:
        """Whether a value is certainly one whose items are there already."""
        displays = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)
        return isinstance(value, displays) or (
            isinstance(value, ast.Call) and self.builtin(value.func) in COLLECTIONS
        )

    def _solid_names(self) -> set[str]:
        """The variables that are never a placeholder themselves, though they may hold one."""
        self._solid = {name for name, found in self._values.items() if None not in found}
        shrinking = True
        while shrinking:
            solid = {
                name
                for name in self._solid
                if not any(value and self.needs(value, Look.ITSELF) for value in self._values[name])
            }
            shrinking, self._solid = solid != self._solid, solid
        return self._solid

    def is_clean(self, node: ast.expr) -> bool:
        if not self._settled:
            return self._is_clean(node)
        known = self._cleanness.get(id(node))
        if known is None:
            known = self._cleanness[id(node)] = self._is_clean(node)
        return known

    def _is_clean(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._clean or (name not in self._known and "@" not in name)
            case ast.BinOp(left=left, right=right):
                return self.is_clean(left) and self.is_clean(right)
            case ast.BoolOp(values=parts):
                return all(map(self.is_clean, parts))
            case ast.IfExp(body=body, orelse=other):
                return self.is_clean(body) and self.is_clean(other)
            case ast.NamedExpr(value=value):
                return self.is_clean(value)
            case ast.Attribute(value=value):
                return self.is_module(value)
            case ast.Call(func=ast.Name(id=name)) if name in self.own & self._coroutines:
                return True
            case ast.Call(func=ast.Name(id=name)) if name in self.tools:
                return False
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in TEXTS
            case ast.Call(func=function):
                return self.builtin(function) in SCALARS
        return isinstance(
            node,
            (
                *(ast.Constant, ast.JoinedStr, ast.Compare, ast.UnaryOp, ast.Set, ast.SetComp),
                *(ast.Lambda, ast.GeneratorExp),
            ),
        )

    def needs(self, node: ast.expr, look: Look) -> bool:
        """Whether a look at the value of ``node`` may meet a placeholder."""
        if look is Look.NONE or self.is_clean(node):
            return False
        deep = look is Look.DEEP
        match node:
            case ast.Name(id=name):
                return deep or name not in (
                    self._solid if look is Look.ITSELF else self._collections
                )
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                return deep and any(self.needs(part, look) for part in parts)
            case ast.ListComp(elt=part) | ast.DictComp(value=part):
                return deep and self.needs(part, look)
            case ast.BinOp(left=left, right=right):
                return deep and (self.needs(left, look) or self.needs(right, look))
            case ast.IfExp(body=body, orelse=other):
                return self.needs(body, look) or self.needs(other, look)
            case ast.BoolOp(values=parts):
                return any(self.needs(part, look) for part in parts)
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.needs(value, look)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                if name in VIEWS and not self.is_module(owner):
                    return deep and self.needs(owner, look)
                return name in METHODS and not self.is_module(owner)
            case ast.Call(func=function, args=parts) if self.builtin(function):
                gives_items = self.builtin(function) in GIVE_ITEMS
                return deep and gives_items and any(self.needs(p, look) for p in parts)
        return True

    def is_active(self, node: ast.AST) -> bool:
        """Whether something may be called or changed while ``node`` is evaluated."""
        return id(node) in self._active

    def calls_only_tools(self, node: ast.AST) -> bool:
        """Whether nothing but tools and builtins is called while ``node`` is evaluated."""
        return not any(
            isinstance(inner, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr))
            or (
                isinstance(inner, ast.Call)
                and not self.is_tool(inner)
                and not isinstance(inner.func, ast.Attribute)
                and self.builtin(inner.func) is None
            )
            for inner in walk(node)
        )
