"""GBNF for the lists that a schema allows: the number of items, tuples, and unique items of an enum.

The caller supplies the expression for an item. Knows nothing of objects and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.answering.grammar import scalars
from emulator.answering.grammar.notation import counted, literal, python
from emulator.answering.grammar.rules import GrammarRules, NoValue
from emulator.answering.grammar.sequences import chain
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema


@dataclass(frozen=True)
class Arrays:
    """Writes lists into ``rules``."""

    rules: GrammarRules
    reading: ExpandedSchema
    value: Callable[[Schema, str], str]
    """(schema, place) -> the expression for a value; ``place`` is the prefix of its rules' names."""

    def items(self, view: dict[str, Any], place: str) -> str:
        """Return the expression for the text between a list's brackets. Raises `NoValue`."""
        least, most = int(view.get("minItems", 0)), view.get("maxItems")
        most = None if most is None else int(most)
        first: list[Schema] = view.get("prefixItems", [])
        rest: Schema = view.get("items", not first)
        if most is not None and least > most:
            raise NoValue
        if first:
            return self._tuple(first, rest, least, most, place)
        if view.get("uniqueItems") and (most is None or most > 1):
            choices = self._choices(rest)
            if choices:
                fields = [(literal(written), False) for written in choices]
                return chain(self.rules, fields, place, least, most)
        try:
            item = self.value(rest, f"{place}-of")
        except NoValue:
            if least:
                raise
            return ""
        if most == 0:
            return ""
        several = f'(", " {item})'
        more = counted(max(least - 1, 0), None if most is None else most - 1)
        written = f"{item} {several}{more}" if most != 1 else item
        return written if least else f"({written})?"

    def _choices(self, schema: Schema) -> list[str]:
        """Return the values that an enum or a boolean allows; [] for any other schema."""
        view = self.reading.view(schema)
        values = view.get("enum", [True, False] if view.get("type") == "boolean" else [])
        valid = [v for v in values if self.reading.admits(v, schema) and scalars.is_text(v)]
        return [python(value) for value in valid]

    def _tuple(
        self, first: Sequence[Schema], rest: Schema, least: int, most: int | None, place: str
    ) -> str:
        parts: list[str] = []
        for n, part in enumerate(first[: len(first) if most is None else most]):
            try:
                parts.append(self.value(part, f"{place}-{n}"))
            except NoValue:
                if n < least:
                    raise
                break
        further = ""
        if len(parts) == len(first) and isinstance(rest, dict):
            room = None if most is None else most - len(first)
            if room is None or room > 0:
                item = self.value(rest, f"{place}-of")
                count = counted(max(least - len(first), 0), room)
                further = f' (", " {item}){count}'
        elif least > len(parts):
            raise NoValue
        tail = further
        for n, written in reversed(list(enumerate(parts))):
            one = f'", " {written}{tail}' if n else f"{written}{tail}"
            tail = f" {one}" if n < least else f" ({one})?"
        return tail.strip()
