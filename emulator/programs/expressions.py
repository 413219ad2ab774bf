"""Rewrite expressions so that what looks at a value which may be a placeholder pauses there.

One rule for each kind of expression; those of calls are in `calls.py`. Knows nothing of statements.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import ClassVar

from emulator.programs.calls import Calls
from emulator.programs.looks import Look
from emulator.programs.operands import CannotTell, Slot, look_of_storing
from sandbox.parsing import walk


class Expressions(Calls):
    """Expressions are changed in place, and given back as they are to be."""

    def _as_it_is(self, node: ast.expr) -> ast.expr:
        return node

    def _named(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.seen(node.value, Look.NONE)
        return node

    def _bool_op(self, node: ast.BoolOp) -> ast.expr:
        *tested, last = node.values
        node.values = [
            *(self.seen(value, Look.ITSELF) for value in tested),
            self.seen(last, Look.NONE),
        ]
        return node

    def _bin_op(self, node: ast.BinOp) -> ast.expr:
        right = Look.DEEP if isinstance(node.op, ast.Mod) else Look.ITSELF
        return self.operands(node, [Slot(node, "left", Look.ITSELF), Slot(node, "right", right)])

    def _unary_op(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.seen(node.operand, Look.ITSELF)
        return node

    def _lambda(self, node: ast.Lambda) -> ast.expr:
        self.defaults(node.args)
        with self.waiting():
            node.body = self.seen(node.body, Look.DEEP)
        return node

    def _if_exp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.seen(node.test, Look.ITSELF)
        node.body = self.seen(node.body, Look.NONE)
        node.orelse = self.seen(node.orelse, Look.NONE)
        return node

    def _display(self, node: ast.List | ast.Tuple) -> ast.expr:
        site = self.batch(node)
        node.elts = [self.part(part) for part in node.elts]
        return self.together(node, site)

    def _dict(self, node: ast.Dict) -> ast.expr:
        site = self.batch(node)
        node.keys = [key and self.seen(key, Look.DEEP) for key in node.keys]
        node.values = [
            self.seen(value, Look.NONE if key else Look.ITSELF)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self.together(node, site)

    def _set(self, node: ast.Set) -> ast.expr:
        node.elts = [self.part(part, Look.DEEP) for part in node.elts]
        return node

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> ast.expr:
        site = self.batch(node)
        first, *others = node.generators
        self._iterable(first)
        if isinstance(node, ast.GeneratorExp):
            with self.waiting():
                self._inside(node, others, Look.DEEP)
        else:
            look = Look.DEEP if isinstance(node, ast.SetComp) else Look.NONE
            self._inside(node, others, look)
        return self.together(node, site)

    def _inside(
        self,
        node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
        others: Sequence[ast.comprehension],
        look: Look,
    ) -> None:
        node.generators[0].ifs = [self.seen(test, Look.ITSELF) for test in node.generators[0].ifs]
        for each in others:
            self._iterable(each)
            each.ifs = [self.seen(test, Look.ITSELF) for test in each.ifs]
        if isinstance(node, ast.DictComp):
            node.key = self.seen(node.key, Look.DEEP)
            node.value = self.seen(node.value, Look.NONE)
        else:
            node.elt = self.seen(node.elt, look)

    def _iterable(self, each: ast.comprehension) -> None:
        simple = look_of_storing(each.target) is Look.NONE
        look = Look.ITEMS if simple or self.gives_tuples(each.iter, each.target) else Look.DEEP
        self.fixed += 1
        each.iter = self.seen(each.iter, Look.DEEP if each.is_async else look)
        self.fixed -= 1

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> ast.expr:
        node.value = node.value and self.seen(node.value, Look.DEEP)
        return node

    def _compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        shallow = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops) or (
            any(isinstance(each, (ast.Constant, ast.JoinedStr)) for each in operands)
            and not any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
            and not node.ops[1:]
        )
        look = Look.ITSELF if shallow else Look.DEEP
        if len(node.ops) > 1 and any(map(self.facts.is_active, node.comparators)):
            raise CannotTell
        slots = [Slot(node.comparators, place, look) for place in range(len(node.ops))]
        return self.operands(node, [Slot(node, "left", look), *slots])

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.seen(node.value, Look.ITSELF)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        slots = [Slot(node, "value", Look.ITSELF)]
        if isinstance(node.slice, ast.Slice):
            parts = [name for name in ("lower", "upper", "step") if getattr(node.slice, name)]
            slots += [Slot(node.slice, name, Look.DEEP) for name in parts]
        elif any(isinstance(part, ast.Slice) for part in walk(node.slice)):
            node.slice = self._index(node.slice)
        else:
            slots.append(Slot(node, "slice", Look.DEEP))
        return self.operands(node, slots)

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            for name in ("lower", "upper", "step"):
                if part := getattr(node, name):
                    setattr(node, name, self.seen(part, Look.DEEP))
            return node
        if isinstance(node, ast.Tuple):
            node.elts = [self._index(part) for part in node.elts]
            return node
        return self.seen(node, Look.DEEP)

    def defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.seen(each, Look.NONE) for each in arguments.defaults]
        arguments.kw_defaults = [
            each and self.seen(each, Look.NONE) for each in arguments.kw_defaults
        ]

    def gives_tuples(self, each: ast.expr, target: ast.expr) -> bool:
        """Whether the items are tuples for sure, and the target takes no more than these apart."""
        if look_of_storing(target) is not Look.ITEMS:
            return False
        match each:
            case ast.Call(func=ast.Attribute(attr="items"), args=[]):
                return True
            case ast.Call(func=function):
                return self.facts.builtin(function) in ("zip", "enumerate")
        return False

    RULES: ClassVar = {
        ast.Name: _as_it_is,
        ast.Constant: _as_it_is,
        ast.NamedExpr: _named,
        ast.BoolOp: _bool_op,
        ast.BinOp: _bin_op,
        ast.UnaryOp: _unary_op,
        ast.Lambda: _lambda,
        ast.IfExp: _if_exp,
        ast.List: _display,
        ast.Tuple: _display,
        ast.Dict: _dict,
        ast.Set: _set,
        ast.ListComp: _comprehension,
        ast.SetComp: _comprehension,
        ast.DictComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.Await: Calls.awaited,
        ast.Yield: _yield,
        ast.YieldFrom: _yield,
        ast.Compare: _compare,
        ast.JoinedStr: Calls.joined,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: Calls.call,
    }
