"""Rewrite calls: a tool's may be passed without its result, what is only printed is not looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from emulator.programs.displays import comprehends, leaves
from emulator.programs.looks import FUNCTIONS, METHODS, Look
from emulator.programs.operands import Operands, Slot, at, called
from emulator.programs.unknown import GOT, TOGETHER

LATER = "_later_"
_SHOWN = frozenset({"str", "repr"})


class Calls(Operands):
    """The rules of calls, awaited or not, and of the displays that make them simultaneous."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        super().__init__(tree, tools)
        self._sites = 0
        self._batched: dict[int, int] = {}
        self.later: dict[str, tuple[int, str]] = {}

    def call(self, node: ast.Call) -> ast.expr:
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
                with self.waiting():  # the engines make these calls awaitable by their names
                    self._arguments(node, Look.DEEP)
                return node
            case ast.Attribute(attr=attr, value=owner) if not facts.is_module(owner):
                looks = METHODS.get(attr)
                if looks is None:
                    receiver = [Slot(node.func, "value", Look.DEEP)]
                else:  # whatever is called for the arguments, this stays what it is
                    node.func.value = self.seen(owner, Look.ITSELF)
                    receiver = []
                if not facts.only_lists:
                    looks = None
                return self.operands(node, [*receiver, *self._slots(node, looks)])
        if isinstance(node.func, ast.Name):
            look = FUNCTIONS.get(facts.builtin(node.func) or "", Look.DEEP)
            words = Look.NONE if facts.builtin(node.func) == "dict" else look
            return self.operands(node, [*self._slots(node, (look,) * len(node.args), words)])
        function = Slot(node, "func", Look.ITSELF)
        return self.operands(node, [function, *self._slots(node, None)])

    def _slots(
        self, node: ast.Call, looks: tuple[Look, ...] | None, words: Look = Look.DEEP
    ) -> Iterator[Slot]:
        for place, argument in enumerate(node.args):
            look = looks[place] if looks is not None and place < len(looks) else Look.DEEP
            if isinstance(argument, ast.Starred):
                yield Slot(argument, "value", max(look, Look.ITEMS), is_starred=True)
            else:
                yield Slot(node.args, place, look)
        for word in node.keywords:
            look = words if word.arg is not None else max(words, Look.ITSELF)
            yield Slot(word, "value", look, is_starred=word.arg is None)

    def _arguments(self, node: ast.Call, look: Look) -> None:
        node.args = [self.part(argument, look) for argument in node.args]
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
                return self.joined(node, Look.NONE)
            case ast.Call(func=function, args=[only], keywords=[]) if self.facts.builtin(
                function
            ) in _SHOWN and not isinstance(only, ast.Starred):
                node.args = [self._shown(only)]
                return node
        return self.seen(node, Look.NONE)

    def awaited(self, node: ast.Await) -> ast.expr:
        if self.facts.is_tool(node.value):
            call = node.value
            assert isinstance(call, ast.Call)
            name = self._deferred(call)
            self._arguments(call, Look.NONE)
            return self._got(node) if name else node
        node.value = self.seen(node.value, Look.ITSELF)
        return node

    def part(self, node: ast.expr, look: Look = Look.NONE) -> ast.expr:
        if isinstance(node, ast.Starred):
            node.value = self.seen(node.value, max(look, Look.ITEMS))
            return node
        return self.seen(node, look)

    def joined(self, node: ast.JoinedStr, look: Look = Look.DEEP) -> ast.expr:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                plain = part.format_spec is None
                part.value = (
                    self._shown(part.value)
                    if plain and not look
                    else self.seen(part.value, Look.DEEP)
                )
                if isinstance(part.format_spec, ast.JoinedStr):
                    self.joined(part.format_spec)
        return node

    def batch(self, node: ast.expr) -> int:
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

    def together(self, node: ast.expr, site: int) -> ast.expr:
        if not site:
            return node
        begun = called(TOGETHER, ast.Constant(site))
        return at(ast.BoolOp(ast.Or(), [begun, node]), node)
