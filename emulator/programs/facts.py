"""Find out which names and expressions of a program can contain a placeholder. Reads only the syntax tree.

The answers hold for any order of execution; in doubt an expression can contain one. The program has no
``async`` (`async_code`), and variables of different scopes have different names (`scopes.separate`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence

from emulator.programs.bindings import bound_names, imported_names, values_by_name
from emulator.programs.callbacks import blocking_functions
from emulator.programs.inspections import (
    EAGER_FUNCTIONS,
    ITEM_FUNCTIONS,
    LAZY_FUNCTIONS,
    METHODS,
    OBSERVERS,
    PLAIN_MODULES,
    SCALAR_FUNCTIONS,
    TEXT_METHODS,
    VIEW_METHODS,
    Inspection,
)
from emulator.programs.sites import called_tool
from sandbox.parsing import children, walk


class Facts:
    """What is known of one program before it runs."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.tools = tools
        nodes = list(walk(tree))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        bound = {
            name
            for node in nodes
            if not isinstance(node, ast.FunctionDef)
            for name in bound_names(node)
        }
        self.defined = bound | {each.name for each in functions}
        self._modules = {name for node in nodes for name in imported_names(node)}
        self._known = self.defined | self._modules
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        values = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in called
        }
        decorated = {each.name for each in functions if each.decorator_list}
        self.own = {each.name for each in functions} - bound - self._modules - decorated
        """Functions of the program that are called by their names."""
        self.callbacks = {each.name for each in functions} & (values | decorated)
        """Functions of the program that other code may call: they are used as values."""
        self.blocking = blocking_functions(functions, nodes, self.callbacks)
        """Functions that may run in the middle of an operation. Their tool calls are not deferred."""
        self.catches = any(
            isinstance(node, ast.Try) or "suppress" in _used_names(node) for node in nodes
        )
        self.has_plain_objects = _has_plain_objects(nodes)
        """True if a method named as in `METHODS` is that of a list, dict or deque, or inspects no more."""
        self.observes_output = "print" in self._known | values or any(
            not OBSERVERS.isdisjoint(_used_names(node)) for node in nodes
        )
        self.inspects_late = self._inspects_late(nodes)
        """True if a library function may inspect an item after the program has continued."""
        self._active: set[ast.AST] = set()
        for node in reversed(nodes):  # children first
            if self._calls(node) or (
                # The body of a lambda runs later.
                not isinstance(node, ast.Lambda)
                and any(child in self._active for child in children(node))
            ):
                self._active.add(node)
        self._is_clean_node: dict[ast.expr, bool] = {}
        self._clean: set[str] = set()
        self._find_clean_names(nodes)

    def _inspects_late(self, nodes: Iterable[ast.AST]) -> bool:
        lazy: set[ast.AST] = set()
        consumed: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Call):
                name = _last_name(node.func)
                calls_own = bool(node.args) and (
                    isinstance(node.args[0], ast.Lambda)
                    or (isinstance(node.args[0], ast.Name) and node.args[0].id in self.own)
                )
                if name in LAZY_FUNCTIONS and name not in self.defined and not calls_own:
                    lazy.add(node)
                if name in EAGER_FUNCTIONS and name not in self.defined:
                    consumed.update(node.args)
        return not lazy <= consumed

    def _calls(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.Yield, ast.YieldFrom, ast.NamedExpr)) or (
            isinstance(node, ast.Call) and self.builtin(node.func) not in SCALAR_FUNCTIONS
        )

    # Names and calls

    def is_tool(self, node: ast.AST) -> bool:
        return called_tool(node, self.tools) is not None

    def builtin(self, node: ast.AST) -> str | None:
        """The name of the builtin that a call's function is; None for other functions."""
        if isinstance(node, ast.Name) and node.id not in self._known and node.id in vars(builtins):
            return node.id
        return None

    def is_module(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._modules

    # Clean: the value never contains a placeholder, whatever the program does with it

    def _find_clean_names(self, nodes: Iterable[ast.AST]) -> None:
        """A variable is clean if all values assigned to it are: the greatest fixed point of this rule."""
        values = values_by_name(nodes)
        candidates = {name for name, assigned in values.items() if None not in assigned}
        if "range" in self._known:
            candidates = set()
        self._clean = candidates | (self._modules | self.own) - set(values)
        dirty = candidates
        while dirty:
            self._is_clean_node.clear()
            dirty = {
                name
                for name in candidates
                if not all(value is not None and self.is_clean(value) for value in values[name])
            }
            candidates -= dirty
            self._clean -= dirty

    def is_clean(self, node: ast.expr) -> bool:
        # Remembered: the rewriter asks for each node of an expression, and each answer needs those below.
        clean = self._is_clean_node.get(node)
        if clean is None:
            clean = self._is_clean_node[node] = self._is_clean(node)
        return clean

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
            case ast.Call(func=ast.Name(id=name)) if name in self.tools:
                return False
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in TEXT_METHODS
            case ast.Call(func=function):
                return self.builtin(function) in SCALAR_FUNCTIONS
        return isinstance(
            node,
            (
                *(ast.Constant, ast.JoinedStr, ast.Compare, ast.UnaryOp, ast.Set, ast.SetComp),
                *(ast.Lambda, ast.GeneratorExp),
            ),
        )

    def needs_check(self, node: ast.expr, inspection: Inspection) -> bool:
        """Return True if this inspection of the value of ``node`` may find a placeholder."""
        if inspection is Inspection.NONE or self.is_clean(node):
            return False
        deep = inspection is Inspection.DEEP
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                return deep and any(self.needs_check(part, inspection) for part in parts)
            case ast.ListComp(elt=part) | ast.DictComp(value=part):
                return deep and self.needs_check(part, inspection)
            case ast.BinOp(left=left, right=right):
                return deep and any(self.needs_check(part, inspection) for part in (left, right))
            case ast.IfExp(body=body, orelse=other):
                return any(self.needs_check(part, inspection) for part in (body, other))
            case ast.BoolOp(values=parts):
                return any(self.needs_check(part, inspection) for part in parts)
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.needs_check(value, inspection)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                if name in VIEW_METHODS and not self.is_module(owner):
                    return deep and self.needs_check(owner, inspection)
                return name in METHODS and not self.is_module(owner)
            case ast.Call(func=function, args=parts) if self.builtin(function):
                has_items = self.builtin(function) in ITEM_FUNCTIONS
                return deep and has_items and any(self.needs_check(p, inspection) for p in parts)
        return True

    def is_active(self, node: ast.AST) -> bool:
        """Return True if evaluating ``node`` may call a function or assign a variable."""
        return node in self._active

    def calls_only_tools(self, node: ast.AST) -> bool:
        """Return True if evaluating ``node`` calls nothing but tools, builtins and methods."""
        return not any(
            self._calls(inner)
            and not self.is_tool(inner)
            and not (
                isinstance(inner, ast.Call)
                and (isinstance(inner.func, ast.Attribute) or self.builtin(inner.func))
            )
            for inner in walk(node)
        )


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _used_names(node: ast.AST) -> Sequence[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return (name,)
        case ast.alias(name=name):
            return name.split(".")
    return ()


def _has_plain_objects(nodes: Iterable[ast.AST]) -> bool:
    modules: set[str] = set()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                modules |= {alias.name.partition(".")[0] for alias in aliases}
            case ast.ImportFrom(module=module):
                modules.add((module or "").partition(".")[0])
            case ast.Name(id="bytearray" | "memoryview"):
                return False
    return modules <= PLAIN_MODULES
