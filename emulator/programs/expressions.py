"""Rewrite expressions so that what looks at a value which may be a placeholder pauses there.

`looks.py` says which operations look at what, `facts.py` what a value may be. Knows nothing of statements.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from emulator.programs.facts import Facts, comprehends, leaves
from emulator.programs.looks import FUNCTIONS, METHODS, Look
from emulator.programs.unknown import GOT, TOGETHER

LATER = "_later_"
SEEN = "_seen_"
LOOKS = {Look.ITSELF: "_look", Look.ITEMS: "_look_items", Look.DEEP: "_look_deep"}
_SHOWN = frozenset({"str", "repr"})

_Node = TypeVar("_Node", bound=ast.AST)


class CannotTell(Exception):
    """The program is one of those that wait at each call."""


class Expressions:
    """Expressions are changed in place, and given back as they are to be."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        self.facts = Facts(tree, tools)
        self.plain = 0
        """In how many things we are in which a call keeps its name, and is waited for."""
        self._fixed = 0
        """In how many expressions we are in which no name may be given."""
        self._temporaries = 0
        self._sites = 0
        self._batched: dict[int, int] = {}
        self.later: dict[str, tuple[int, str]] = {}

    # Expressions

    def seen(self, node: ast.expr, look: Look) -> ast.expr:
        """The expression, rewritten, as an operation gets it that looks at its value."""
        needed = self.facts.needs(node, look)
        rewritten = self._visit(node)
        return at(called(LOOKS[look], rewritten), node) if needed else rewritten

    def _visit(self, node: ast.expr) -> ast.expr:
        rule = self._RULES.get(type(node))
        if rule is None:
            raise CannotTell
        rewritten: ast.expr = rule(self, node)
        return rewritten

    def _operands(self, node: ast.expr, slots: Sequence[_Slot]) -> ast.expr:
        """``node``, whose operands are evaluated in the order of ``slots`` before any is looked at."""
        values = [slot.value for slot in slots]
        last = max((n for n, value in enumerate(values) if self.facts.is_active(value)), default=0)
        hazard = any(self.facts.needs(slot.value, slot.look) for slot in slots[:last])
        if not hazard:
            for slot in slots:
                slot.value = self.seen(slot.value, slot.look)
            return node
        if self._fixed or any(slot.is_starred for slot in slots):
            raise CannotTell
        first: list[ast.expr] = []
        for slot in slots[: last + 1]:
            if isinstance(slot.value, ast.Constant):
                continue
            needed = self.facts.needs(slot.value, slot.look)
            name = self.temporary()
            value = self._visit(slot.value)
            first.append(at(ast.NamedExpr(ast.Name(name, ast.Store()), value), slot.value))
            kept = at(ast.Name(name, ast.Load()), node)
            slot.value = called(LOOKS[slot.look], kept) if needed else kept
        for slot in slots[last + 1 :]:
            slot.value = self.seen(slot.value, slot.look)
        return at(ast.BoolOp(ast.And(), [ast.Tuple(first, ast.Load()), node]), node)

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
        return self._operands(node, [_Slot(node, "left", Look.ITSELF), _Slot(node, "right", right)])

    def _unary_op(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.seen(node.operand, Look.ITSELF)
        return node

    def _lambda(self, node: ast.Lambda) -> ast.expr:
        self.defaults(node.args)
        with self._waiting():
            node.body = self.seen(node.body, Look.DEEP)
        return node

    def _if_exp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.seen(node.test, Look.ITSELF)
        node.body = self.seen(node.body, Look.NONE)
        node.orelse = self.seen(node.orelse, Look.NONE)
        return node

    def _display(self, node: ast.List | ast.Tuple) -> ast.expr:
        site = self._batch(node)
        node.elts = [self._part(part) for part in node.elts]
        return self._together(node, site)

    def _dict(self, node: ast.Dict) -> ast.expr:
        site = self._batch(node)
        node.keys = [key and self.seen(key, Look.DEEP) for key in node.keys]
        node.values = [
            self.seen(value, Look.NONE if key else Look.ITSELF)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self._together(node, site)

    def _set(self, node: ast.Set) -> ast.expr:
        node.elts = [self._part(part, Look.DEEP) for part in node.elts]
        return node

    def _part(self, node: ast.expr, look: Look = Look.NONE) -> ast.expr:
        if isinstance(node, ast.Starred):
            node.value = self.seen(node.value, max(look, Look.ITEMS))
            return node
        return self.seen(node, look)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> ast.expr:
        site = self._batch(node)
        first, *others = node.generators
        self._iterable(first)
        if isinstance(node, ast.GeneratorExp):
            with self._waiting():
                self._inside(node, others, Look.DEEP)
        else:
            look = Look.DEEP if isinstance(node, ast.SetComp) else Look.NONE
            self._inside(node, others, look)
        return self._together(node, site)

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
        self._fixed += 1
        each.iter = self.seen(each.iter, Look.DEEP if each.is_async else look)
        self._fixed -= 1

    def _await(self, node: ast.Await) -> ast.expr:
        if self.facts.is_tool(node.value):
            call = node.value
            assert isinstance(call, ast.Call)
            name = self._deferred(call)
            self._arguments(call, Look.NONE)
            return self._got(node) if name else node
        node.value = self.seen(node.value, Look.ITSELF)
        return node

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
        slots = [_Slot(node.comparators, place, look) for place in range(len(node.ops))]
        return self._operands(node, [_Slot(node, "left", look), *slots])

    def _joined(self, node: ast.JoinedStr, look: Look = Look.DEEP) -> ast.expr:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                plain = part.format_spec is None
                part.value = (
                    self._shown(part.value)
                    if plain and not look
                    else self.seen(part.value, Look.DEEP)
                )
                if isinstance(part.format_spec, ast.JoinedStr):
                    self._joined(part.format_spec)
        return node

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.seen(node.value, Look.ITSELF)
        return node

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        slots = [_Slot(node, "value", Look.ITSELF)]
        if isinstance(node.slice, ast.Slice):
            parts = [name for name in ("lower", "upper", "step") if getattr(node.slice, name)]
            slots += [_Slot(node.slice, name, Look.DEEP) for name in parts]
        elif any(isinstance(part, ast.Slice) for part in ast.walk(node.slice)):
            node.slice = self._index(node.slice)
        else:
            slots.append(_Slot(node, "slice", Look.DEEP))
        return self._operands(node, slots)

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

    # Calls

    def _call(self, node: ast.Call) -> ast.expr:
        facts = self.facts
        if facts.is_tool(node):
            name = self._deferred(node)
            # Whether an argument is a placeholder, the driver sees.
            self._arguments(node, Look.NONE)
            return self._got(node) if name else node
        match node.func:
            case ast.Name(id=name) if name in facts.own:
                self._arguments(node, Look.NONE)
                return node
            case ast.Name(id="print") if self._prints_blindly(node):
                node.args = [self._printed(argument) for argument in node.args]
                return node
            case ast.Attribute(value=ast.Name(id="asyncio")):
                with self._waiting():  # the engines make these calls awaitable by their names
                    self._arguments(node, Look.DEEP)
                return node
            case ast.Attribute(attr=attr, value=owner) if not facts.is_module(owner):
                looks = METHODS.get(attr)
                if looks is None:
                    receiver = [_Slot(node.func, "value", Look.DEEP)]
                else:  # whatever is called for the arguments, this stays what it is
                    node.func.value = self.seen(owner, Look.ITSELF)
                    receiver = []
                if not facts.only_lists:
                    looks = None
                return self._operands(node, [*receiver, *self._slots(node, looks)])
        if isinstance(node.func, ast.Name):
            look = FUNCTIONS.get(facts.builtin(node.func) or "", Look.DEEP)
            words = Look.NONE if facts.builtin(node.func) == "dict" else look
            return self._operands(node, [*self._slots(node, (look,) * len(node.args), words)])
        function = _Slot(node, "func", Look.ITSELF)
        return self._operands(node, [function, *self._slots(node, None)])

    def _slots(
        self, node: ast.Call, looks: tuple[Look, ...] | None, words: Look = Look.DEEP
    ) -> Iterator[_Slot]:
        for place, argument in enumerate(node.args):
            look = looks[place] if looks is not None and place < len(looks) else Look.DEEP
            if isinstance(argument, ast.Starred):
                yield _Slot(argument, "value", max(look, Look.ITEMS), is_starred=True)
            else:
                yield _Slot(node.args, place, look)
        for word in node.keywords:
            look = words if word.arg is not None else max(words, Look.ITSELF)
            yield _Slot(word, "value", look, is_starred=word.arg is None)

    def _arguments(self, node: ast.Call, look: Look) -> None:
        node.args = [self._part(argument, look) for argument in node.args]
        for word in node.keywords:
            least = look if word.arg is not None else max(look, Look.ITSELF)
            word.value = self.seen(word.value, least)

    def _deferred(self, call: ast.Call) -> str:
        """The name under which the driver may pass the call; "" where it is waited for."""
        assert isinstance(call.func, ast.Name)
        if self.plain:
            return ""
        site = self._batched.get(id(call), 0)
        name = f"{LATER}{site}_{call.func.id}"
        self.later[name] = (site, call.func.id)
        call.func = at(ast.Name(name, ast.Load()), call.func)
        return name

    def _got(self, node: ast.expr) -> ast.expr:
        return at(called(GOT, node), node)

    def _prints_blindly(self, node: ast.Call) -> bool:
        facts = self.facts
        return (
            facts.builtin(node.func) == "print"
            and not facts.prints_are_seen
            and all(
                word.arg in ("sep", "end", "flush") and isinstance(word.value, ast.Constant)
                for word in node.keywords
            )
        )

    def _printed(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            node.value = self.seen(node.value, Look.ITEMS)
            return node
        return self._shown(node)

    def _shown(self, node: ast.expr) -> ast.expr:
        """What is only printed, with what makes a text of it."""
        match node:
            case ast.JoinedStr():
                return self._joined(node, Look.NONE)
            case ast.Call(func=function, args=[only], keywords=[]) if self.facts.builtin(
                function
            ) in _SHOWN and not isinstance(only, ast.Starred):
                node.args = [self._shown(only)]
                return node
        return self.seen(node, Look.NONE)

    # Calls that were written as simultaneous

    def _batch(self, node: ast.expr) -> int:
        """The site of a display or comprehension, 0 if it makes no calls or is part of a larger one."""
        calls = [
            leaf.value if isinstance(leaf, ast.Await) else leaf
            for leaf in leaves(node)
            if self.facts.is_tool(leaf.value if isinstance(leaf, ast.Await) else leaf)
        ]
        if self.plain or not (len(calls) > 1 or (calls and comprehends(node))):
            return 0
        if any(id(call) in self._batched for call in calls):
            return 0
        self._sites += 1
        self._batched |= {id(call): self._sites for call in calls}
        return self._sites

    def _together(self, node: ast.expr, site: int) -> ast.expr:
        if not site:
            return node
        begun = called(TOGETHER, ast.Constant(site))
        return at(ast.BoolOp(ast.Or(), [begun, node]), node)

    def temporary(self) -> str:
        self._temporaries += 1
        return f"{SEEN}{self._temporaries}"

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.plain += 1
        yield
        self.plain -= 1

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

    _RULES: ClassVar[dict[type[ast.expr], Callable[[Any, Any], ast.expr]]] = {
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
        ast.Await: _await,
        ast.Yield: _yield,
        ast.YieldFrom: _yield,
        ast.Compare: _compare,
        ast.JoinedStr: _joined,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Call: _call,
    }


class _Slot:
    """The place of an operand, and how the operation looks at it."""

    def __init__(
        self, holder: Any, key: str | int, look: Look, *, is_starred: bool = False
    ) -> None:
        self._holder, self._key = holder, key
        self.look = look
        self.is_starred = is_starred

    @property
    def value(self) -> ast.expr:
        if isinstance(self._key, int):
            return self._holder[self._key]  # type: ignore[no-any-return]
        return getattr(self._holder, self._key)  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: ast.expr) -> None:
        if isinstance(self._key, int):
            self._holder[self._key] = value
        else:
            setattr(self._holder, self._key, value)


def look_of_storing(target: ast.expr) -> Look:
    """How storing to a target looks at the value."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            plain = all(
                look_of_storing(p.value if isinstance(p, ast.Starred) else p) is Look.NONE
                for p in parts
            )
            return Look.ITEMS if plain else Look.DEEP
        case ast.Attribute():
            return Look.DEEP
    return Look.NONE


def called(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def at(node: _Node, place: ast.AST) -> _Node:
    return ast.copy_location(node, place)
