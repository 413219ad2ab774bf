"""Rewrite calls: defer those of tools, and do not inspect what is only printed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from emulator.programs.handling import MARK
from emulator.programs.inspections import FUNCTIONS, METHODS, Inspection
from emulator.programs.operands import OperandRewriter, Slot, at, call_of
from emulator.programs.placeholder import BATCH, CHECK_RESULT
from emulator.programs.sites import has_comprehension, leaves

DEFERRED = "_deferred_"
_TEXT_FUNCTIONS = frozenset({"str", "repr"})


class CallRewriter(OperandRewriter):
    """The rules for calls, and for the displays that make calls simultaneous."""

    def __init__(self, tree: ast.Module, tools: frozenset[str]) -> None:
        super().__init__(tree, tools)
        self._site_count = 0
        self._batch_sites: dict[ast.expr, int] = {}
        self.deferred: dict[str, tuple[int, str]] = {}

    def call(self, node: ast.Call) -> ast.expr:
        facts = self.facts
        if facts.is_tool(node):
            return self._tool_call(node)
        match node.func:
            case ast.Name(id=name) if name in facts.own:
                self._arguments(node, Inspection.NONE)
                return node
            case ast.Name(id=name) if name.startswith(MARK):  # it returns its argument
                self._arguments(node, Inspection.NONE)
                return node
            case ast.Name(id="print") if self._is_plain_print(node):
                node.args = [self._printed_value(argument) for argument in node.args]
                return node
            case ast.Attribute(attr=attr, value=owner) if not facts.is_module(owner):
                inspections = METHODS.get(attr)
                if inspections is None:
                    receiver = [Slot(node.func, "value", Inspection.DEEP)]
                else:  # no argument can make another object of the receiver
                    node.func.value = self.checked(owner, Inspection.ITSELF)
                    receiver = []
                if not facts.has_plain_objects:
                    inspections = None
                return self.operation(node, [*receiver, *self._slots(node, inspections)])
        if isinstance(node.func, ast.Name):
            inspection = FUNCTIONS.get(facts.builtin(node.func) or "", Inspection.DEEP)
            words = Inspection.NONE if facts.builtin(node.func) == "dict" else inspection
            return self.operation(node, [*self._slots(node, (inspection,) * len(node.args), words)])
        function = Slot(node, "func", Inspection.ITSELF)
        return self.operation(node, [function, *self._slots(node, None)])

    def _slots(
        self,
        node: ast.Call,
        inspections: tuple[Inspection, ...] | None,
        words: Inspection = Inspection.DEEP,
    ) -> Iterator[Slot]:
        for place, argument in enumerate(node.args):
            inspection = (
                inspections[place]
                if inspections is not None and place < len(inspections)
                else Inspection.DEEP
            )
            if isinstance(argument, ast.Starred):
                # The arguments are its items, so what inspects an argument inspects it deeper.
                starred = Inspection.DEEP if inspection else Inspection.ITEMS
                yield Slot(argument, "value", starred, is_starred=True)
            else:
                yield Slot(node.args, place, inspection)
        for word in node.keywords:
            inspection = words if word.arg is not None else max(words, Inspection.ITSELF)
            yield Slot(word, "value", inspection, is_starred=word.arg is None)

    def _arguments(self, node: ast.Call, inspection: Inspection) -> None:
        node.args = [self.part(argument, inspection) for argument in node.args]
        for word in node.keywords:
            least = inspection if word.arg is not None else max(inspection, Inspection.ITSELF)
            word.value = self.checked(word.value, least)

    def _tool_call(self, node: ast.Call) -> ast.expr:
        """Rename the tool call ``node``, so that the host may defer its result."""
        # The host checks the arguments for placeholders.
        self._arguments(node, Inspection.NONE)
        if self.blocking_depth:
            return node
        assert isinstance(node.func, ast.Name)
        site = self._batch_sites.get(node, 0)
        name = f"{DEFERRED}{site}_{node.func.id}"
        self.deferred[name] = (site, node.func.id)
        node.func = at(ast.Name(name, ast.Load()), node.func)
        return at(call_of(CHECK_RESULT, node), node)

    def _is_plain_print(self, node: ast.Call) -> bool:
        facts = self.facts
        return (
            facts.builtin(node.func) == "print"
            and not facts.observes_output
            and all(
                word.arg in ("sep", "end", "flush") and isinstance(word.value, ast.Constant)
                for word in node.keywords
            )
        )

    def _printed_value(self, node: ast.expr) -> ast.expr:
        """An expression that is only printed, perhaps as part of an f-string: a placeholder may be
        printed."""
        match node:
            case ast.Starred():
                return self.part(node)
            case ast.JoinedStr():
                return self.joined(node, Inspection.NONE)
            case ast.Call(func=function, args=[only], keywords=[]) if self.facts.builtin(
                function
            ) in _TEXT_FUNCTIONS and not isinstance(only, ast.Starred):
                node.args = [self._printed_value(only)]
                return node
        return self.checked(node, Inspection.NONE)

    def part(self, node: ast.expr, inspection: Inspection = Inspection.NONE) -> ast.expr:
        if isinstance(node, ast.Starred):
            node.value = self.checked(node.value, max(inspection, Inspection.ITEMS))
            return node
        return self.checked(node, inspection)

    def joined(self, node: ast.JoinedStr, inspection: Inspection = Inspection.DEEP) -> ast.expr:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                plain = part.format_spec is None
                part.value = (
                    self._printed_value(part.value)
                    if plain and not inspection
                    else self.checked(part.value, Inspection.DEEP)
                )
                if isinstance(part.format_spec, ast.JoinedStr):
                    self.joined(part.format_spec)
        return node

    def batch(self, node: ast.expr) -> int:
        """The site of a display with simultaneous calls; 0 if it has none, or is part of a larger one."""
        calls = [leaf for leaf in leaves(node) if self.facts.is_tool(leaf)]
        if self.blocking_depth or not (len(calls) > 1 or (calls and has_comprehension(node))):
            return 0
        if any(call in self._batch_sites for call in calls):
            return 0
        self._site_count += 1
        self._batch_sites |= dict.fromkeys(calls, self._site_count)
        return self._site_count

    def begin_batch(self, node: ast.expr, site: int) -> ast.expr:
        if not site:
            return node
        begin = call_of(BATCH, ast.Constant(site))
        return at(ast.BoolOp(ast.Or(), [begin, node]), node)
