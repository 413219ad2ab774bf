"""Rewrite expressions so that an operation that inspects a placeholder pauses the program.

One rule for each kind of expression; the rules for calls are in `calls.py`. Knows nothing of statements.
"""

from __future__ import annotations

import ast
from contextlib import nullcontext
from typing import ClassVar

from emulator.programs.calls import CallRewriter
from emulator.programs.inspections import Inspection
from emulator.programs.operands import NotAnalyzable, Slot, inspection_of_target
from sandbox.parsing import walk


class ExpressionRewriter(CallRewriter):
    """The rules for all other expressions."""

    def _unchanged(self, node: ast.expr) -> ast.expr:
        return node

    def _named(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.checked(node.value, Inspection.NONE)
        return node

    def _bool_op(self, node: ast.BoolOp) -> ast.expr:
        *tested, last = node.values
        node.values = [
            *(self.checked(value, Inspection.ITSELF) for value in tested),
            self.checked(last, Inspection.NONE),
        ]
        return node

    def _bin_op(self, node: ast.BinOp) -> ast.expr:
        right = Inspection.DEEP if isinstance(node.op, ast.Mod) else Inspection.ITSELF
        return self.operation(
            node, [Slot(node, "left", Inspection.ITSELF), Slot(node, "right", right)]
        )

    def _unary_op(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.checked(node.operand, Inspection.ITSELF)
        return node

    def _lambda(self, node: ast.Lambda) -> ast.expr:
        self.defaults(node.args)
        with self.blocking():
            node.body = self.checked(node.body, Inspection.DEEP)
        return node

    def _if_exp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.checked(node.test, Inspection.ITSELF)
        node.body = self.checked(node.body, Inspection.NONE)
        node.orelse = self.checked(node.orelse, Inspection.NONE)
        return node

    def _display(self, node: ast.List | ast.Tuple) -> ast.expr:
        site = self.batch(node)
        node.elts = [self.part(part) for part in node.elts]
        return self.begin_batch(node, site)

    def _dict(self, node: ast.Dict) -> ast.expr:
        site = self.batch(node)
        node.keys = [key and self.checked(key, Inspection.DEEP) for key in node.keys]
        node.values = [
            self.checked(value, Inspection.NONE if key else Inspection.ITSELF)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self.begin_batch(node, site)

    def _set(self, node: ast.Set) -> ast.expr:
        node.elts = [self.part(part, Inspection.DEEP) for part in node.elts]
        return node

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> ast.expr:
        site = self.batch(node)
        self._iterable(node.generators[0])
        is_lazy = isinstance(node, ast.GeneratorExp)
        inspection = (
            Inspection.DEEP if is_lazy or isinstance(node, ast.SetComp) else Inspection.NONE
        )
        with self.blocking() if is_lazy else nullcontext():
            for place, each in enumerate(node.generators):
                if place:
                    self._iterable(each)
                each.ifs = [self.checked(test, Inspection.ITSELF) for test in each.ifs]
            if isinstance(node, ast.DictComp):
                node.key = self.checked(node.key, Inspection.DEEP)
                node.value = self.checked(node.value, Inspection.NONE)
            else:
                node.elt = self.checked(node.elt, inspection)
        return self.begin_batch(node, site)

    def _iterable(self, each: ast.comprehension) -> None:
        simple = inspection_of_target(each.target) is Inspection.NONE
        inspection = (
            Inspection.ITEMS
            if simple or self.has_tuple_items(each.iter, each.target)
            else Inspection.DEEP
        )
        self.iterable_depth += 1
        each.iter = self.checked(each.iter, inspection)
        self.iterable_depth -= 1

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> ast.expr:
        node.value = node.value and self.checked(node.value, Inspection.DEEP)
        return node

    def _compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        shallow = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops) or (
            any(isinstance(each, (ast.Constant, ast.JoinedStr)) for each in operands)
            and not any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
            and not node.ops[1:]
        )
        inspection = Inspection.ITSELF if shallow else Inspection.DEEP
        if len(node.ops) > 1 and any(map(self.facts.is_active, node.comparators)):
            raise NotAnalyzable
        slots = [Slot(node.comparators, place, inspection) for place in range(len(node.ops))]
        return self.operation(node, [Slot(node, "left", inspection), *slots])

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.checked(node.value, Inspection.ITSELF)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        slots = [Slot(node, "value", Inspection.ITSELF)]
        if any(isinstance(part, ast.Slice) for part in walk(node.slice)):
            node.slice = self._index(node.slice)
        else:
            slots.append(Slot(node, "slice", Inspection.DEEP))
        return self.operation(node, slots)

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            for name in ("lower", "upper", "step"):
                if part := getattr(node, name):
                    setattr(node, name, self.checked(part, Inspection.DEEP))
            return node
        if isinstance(node, ast.Tuple):
            node.elts = [self._index(part) for part in node.elts]
            return node
        return self.checked(node, Inspection.DEEP)

    def defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.checked(each, Inspection.NONE) for each in arguments.defaults]
        arguments.kw_defaults = [
            each and self.checked(each, Inspection.NONE) for each in arguments.kw_defaults
        ]

    def has_tuple_items(self, each: ast.expr, target: ast.expr) -> bool:
        """Return True if the items of ``each`` are certainly tuples, and ``target`` unpacks only these
        tuples."""
        if inspection_of_target(target) is not Inspection.ITEMS:
            return False
        match each:
            case ast.Call(func=ast.Attribute(attr="items"), args=[]):
                return True
            case ast.Call(func=function):
                return self.facts.builtin(function) in ("zip", "enumerate")
        return False

    RULES: ClassVar = {
        ast.Name: _unchanged,
        ast.Constant: _unchanged,
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
        ast.Yield: _yield,
        ast.YieldFrom: _yield,
        ast.Compare: _compare,
        ast.JoinedStr: CallRewriter.joined,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: CallRewriter.call,
    }
