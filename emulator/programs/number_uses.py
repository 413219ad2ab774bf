"""Rewrite the places where a program uses a number, a boolean or None, so that a text of a result counts as
its value there (`scalar_results.py`).

* ``r * 2``, ``-r``, ``round(r)`` and ``f"{r:.2f}"`` become ``_check_number(r) * 2`` and so on;
* ``if r``, ``not r`` and ``r or 1`` use the truth of the value: ``if _check_truth(r)``;
* ``a + b``, ``a < b`` and ``a % b`` are operations on texts if one operand is a text of the program's own;
* ``a == b`` compares a text of a result with a number as a number, and two results as texts;
* ``d[r]`` and ``r in d`` look for the text, then for the value;
* ``sorted``, ``max`` and ``min`` compare values and return texts: they get a ``key``.

All other operations are those of texts. Reads only syntax; an operand that no result can be stays unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from copy import deepcopy
from string import Formatter
from typing import Any

from emulator.programs.bindings import bound_names, values_by_name
from emulator.programs.calls import DEFERRED
from emulator.programs.operands import at, call_of
from emulator.programs.text_results import is_text
from sandbox.engine import CHECK_PREFIX
from sandbox.parsing import walk

_words = str.split
_NUMBER_FUNCTIONS = frozenset(
    _words("int float complex abs round divmod pow range bool chr bin hex oct")
)
_FOLDS = frozenset(_words("sum any all"))
_ORDERS = frozenset(_words("sorted min max"))
_NUMBER_MODULES = frozenset(_words("math statistics numpy np"))
_SPEC_OF_NUMBERS = re.compile(r"[bcdeEfFgGnoxX%]\Z|[,_+]|\A0")
_PERCENT = re.compile(r"%(?:\(\w*\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?([a-zA-Z%])")
_REPEATABLE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.UnaryOp),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set),
)
_SIGNS: dict[type[ast.AST], str] = {
    **dict(zip((ast.Add, ast.Mod, ast.Eq, ast.NotEq), _words("+ % == !="), strict=True)),
    **dict(zip((ast.Lt, ast.LtE, ast.Gt, ast.GtE), _words("< <= > >="), strict=True)),
}


def convert_numbers(tree: ast.Module, tools: Collection[str]) -> None:
    """Rewrite ``tree`` in place."""
    _NumberUses(tree, tools).visit(tree)
    ast.fix_missing_locations(tree)


class _NumberUses(ast.NodeTransformer):
    def __init__(self, tree: ast.Module, tools: Collection[str]) -> None:
        self._tools = tools
        self._own = {name for node in walk(tree) for name in bound_names(node)} | set(tools)
        values = values_by_name(walk(tree))
        self._texts = {name for name, each in values.items() if any(map(is_text, each))}
        """Variables that begin as texts of the program: adding to them joins texts."""
        self._plain = {name for name, each in values.items() if all(map(_is_plain, each))}
        """Variables that are numbers of the program."""

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        _convert_conditions(node)
        match node:
            case ast.For() | ast.comprehension():
                if isinstance(node.iter, ast.Name) or _is_check(node.iter):
                    node.iter = _number(node.iter)  # no loop is over the letters of a number
            case ast.UnaryOp():
                node.operand = _number(node.operand)
            case ast.BinOp():
                return self._binary(node)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Compare():
                return self._compared(node)
            case ast.Subscript(value=owner, slice=key, ctx=ast.Load()):
                plain = isinstance(key, ast.Slice | ast.Tuple) or _is_literal(key)
                if not plain and _is_repeatable(owner):
                    node.slice = _checked("_check_index", deepcopy(owner), key, place=node)
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=parts), conversion=-1):
                texts = [str(p.value) if isinstance(p, ast.Constant) else "1" for p in parts]
                if _SPEC_OF_NUMBERS.search("".join(texts)):
                    node.value = _number(node.value)
            case ast.Call():
                self._call(node)
        return node

    def _binary(self, node: ast.BinOp) -> ast.AST:
        match node:
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
                node.right = _percent(text, node.right)
            case ast.BinOp(op=ast.Add() | ast.Mod() as sign):
                joins = isinstance(node.left, ast.Name) and node.left.id in self._texts
                if not (_has_text(node.left, node.right) or (joins and isinstance(sign, ast.Add))):
                    return _operation(_SIGNS[type(sign)], node.left, node.right, node)
            case ast.BinOp(op=ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Pow()):
                node.left, node.right = _number(node.left), _number(node.right)
        return node

    def _augmented(self, node: ast.AugAssign) -> ast.AST | list[ast.AST]:
        target = deepcopy(node.target)
        target.ctx = ast.Load()
        joins = isinstance(target, ast.Name) and target.id in self._texts
        if joins or is_text(node.value) or not _is_repeatable(target):
            return node
        if isinstance(node.op, ast.Add) and not _is_plain(node.value):
            value = _operation("+=", target, node.value, node)
            return at(ast.Assign([node.target], value), node)
        before = at(ast.Assign([deepcopy(node.target)], _number(target)), node)
        node.value = _number(node.value)
        return [before, node]

    def _compared(self, node: ast.Compare) -> ast.AST:
        operands = [node.left, *node.comparators]
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[container]):
                if _is_plain(left):
                    node.comparators = [_wrapped("_check_numbers", container)]
                elif _are_plain(container):
                    node.left = _number(left)
                elif _is_repeatable(container) and not _is_literal(left):
                    node.left = _checked("_check_key", deepcopy(container), left, place=node)
            case _ if _has_text(*operands):
                node.left, *node.comparators = [_wrapped("_check_text", each) for each in operands]
            case ast.Compare(ops=[sign]) if not any(map(self._is_plain, operands)):
                if type(sign) in _SIGNS:
                    return _operation(_SIGNS[type(sign)], node.left, node.comparators[0], node)
            case _:
                node.left, *node.comparators = map(_number, operands)
        return node

    def _is_plain(self, node: ast.expr) -> bool:
        return node.id in self._plain if isinstance(node, ast.Name) else _is_plain(node)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in self._tools or name.startswith(DEFERRED):
                _wrap_arguments(node, "_check_sent")
            case ast.Name(id=name) if name not in self._own:
                self._builtin(node, name)
            case ast.Attribute(value=ast.Name(id=module)) if module in _NUMBER_MODULES - self._own:
                _wrap_arguments(node, "_check_numbers")
            case ast.Attribute(value=owner, attr=name):
                _method(node, owner, name)

    def _builtin(self, node: ast.Call, name: str) -> None:
        match node.args:
            case [each] if name in _FOLDS:
                node.args = [_folded(each)]
            case [_, *_] if name in _ORDERS:
                _order_by_value(node)
            case [function, items] if name == "filter":
                node.args = [call_of("_check_by", function), items]
            case [value, kind] if name == "isinstance" and "str" not in ast.unparse(kind):
                node.args = [_number(value), kind]
            case [value, *_] if name == "dumps":
                node.args[0] = _wrapped("_check_numbers", value)
            case [_] | [_, _] if name in _NUMBER_FUNCTIONS and (name, len(node.args)) != ("int", 2):
                _wrap_arguments(node, "_check_number")


def _convert_conditions(node: ast.AST) -> None:
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            node.test = _wrapped("_check_truth", node.test)
        case ast.comprehension():
            node.ifs = [_wrapped("_check_truth", test) for test in node.ifs]
        case ast.BoolOp():
            node.values[:-1] = [_wrapped("_check_truth", value) for value in node.values[:-1]]


def _method(node: ast.Call, owner: ast.expr, name: str) -> None:
    match name, node.args:
        case "sort", []:
            _order_by_value(node)
        case "dumps", [value, *_]:
            node.args[0] = _wrapped("_check_numbers", value)
        case (("count" | "index"), [item]) if _is_plain(item):
            node.func.value = _wrapped("_check_numbers", owner)  # type: ignore[attr-defined]
        case "get", [key, *_] if not _is_literal(key) and _is_repeatable(owner):
            node.args[0] = _checked("_check_key", deepcopy(owner), key, place=node)
        case "format", _ if isinstance(owner, ast.Constant):
            _format_fields(node, str(owner.value))


def _format_fields(node: ast.Call, text: str) -> None:
    """The arguments of ``text.format(...)`` that are formatted only as numbers."""
    specs: dict[str, list[str]] = {}
    try:
        for position, (_, name, spec, conversion) in enumerate(
            field for field in Formatter().parse(text) if field[1] is not None
        ):
            specs.setdefault(name or str(position), []).append("" if conversion else spec or "")
    except ValueError:
        return
    of_numbers = {name for name, each in specs.items() if all(map(_SPEC_OF_NUMBERS.search, each))}
    node.args = [
        _number(each) if str(n) in of_numbers else each for n, each in enumerate(node.args)
    ]
    for word in node.keywords:
        if word.arg in of_numbers:
            word.value = _number(word.value)


def _percent(text: str, right: ast.expr) -> ast.expr:
    """The right operand of ``text % right``."""
    letters = [letter for letter in _PERCENT.findall(text) if letter != "%"]
    values = right.args[0] if isinstance(right, ast.Call) and _is_check(right) else right
    if isinstance(values, ast.Tuple) and len(values.elts) == len(letters):
        pairs = zip(letters, values.elts, strict=True)
        values.elts = [each if letter in "sra" else _number(each) for letter, each in pairs]
        return right
    return right if set(letters) & set("sra") else _wrapped("_check_numbers", right)


def _folded(each: ast.expr) -> ast.expr:
    """The argument of `sum`, `any` or `all`, with the value of each item."""
    if isinstance(each, ast.GeneratorExp | ast.ListComp | ast.SetComp):
        each.elt = _wrapped("_check_numbers", each.elt)
        return each
    if isinstance(each, ast.Starred):
        return each
    return call_of("_check_each", each)


def _order_by_value(node: ast.Call) -> None:
    for word in node.keywords:
        if word.arg == "key":
            word.value = call_of("_check_by", word.value)
            return
    literals = all(map(_is_literal, node.args or [node.func]))
    if not literals and all(word.arg for word in node.keywords):
        node.keywords.append(ast.keyword("key", ast.Name("_check_numbers", ast.Load())))


def _wrap_arguments(node: ast.Call, check: str) -> None:
    node.args = [_wrapped(check, argument) for argument in node.args]
    for word in node.keywords:
        word.value = _wrapped(check, word.value)


def _number(node: ast.expr) -> ast.expr:
    return _wrapped("_check_number", node)


def _wrapped(check: str, node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Starred):
        node.value = _wrapped("_check_numbers" if check == "_check_number" else check, node.value)
        return node
    match node:
        case (
            ast.List(elts=parts)
            | ast.Tuple(elts=parts)
            | ast.Dict(values=parts)
            | ast.BoolOp(values=parts)
        ) if check == "_check_sent":  # a literal is no result
            parts[:] = [_wrapped(check, part) for part in parts]
            return node
    return node if _is_literal(node) else at(call_of(check, node), node)


def _operation(sign: str, one: ast.expr, other: ast.expr, place: ast.AST) -> ast.expr:
    return _checked("_check_operation", ast.Constant(sign), one, other, place=place)


def _checked(check: str, *operands: ast.expr, place: ast.AST) -> ast.expr:
    return at(call_of(check, ast.Tuple(list(operands), ast.Load())), place)


def _is_plain(node: ast.expr | None) -> bool:
    """A literal of a number, a boolean or None."""
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand)
    return isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes)


def _are_plain(display: ast.expr) -> bool:
    match display:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return all(map(_is_plain, items))
    return False


def _has_text(*nodes: ast.expr) -> bool:
    return any(map(is_text, nodes))


def _is_literal(node: ast.expr) -> bool:
    kinds = ast.Constant | ast.JoinedStr | ast.Compare | ast.Lambda
    return isinstance(node, kinds) or _is_plain(node)


def _is_check(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name.startswith(CHECK_PREFIX)
    return False


def _is_repeatable(node: ast.expr) -> bool:
    """Return True if evaluating ``node`` twice is the same as once."""
    return all(isinstance(each, _REPEATABLE) or _is_check(each) for each in walk(node))
