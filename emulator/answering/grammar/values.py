"""Translate a schema into GBNF for the Python literals that it allows.

The grammar ignores what a context-free grammar cannot express, or only with very many rules: ``not``,
``contains``, ``uniqueItems`` unless items have an enum, conditions on more than one member, patterns with
look-around, and the "exactly one" of ``oneOf`` where alternatives overlap. The host validates these. Knows
nothing of calls or prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.answering.grammar import scalars
from emulator.answering.grammar.arrays import Arrays
from emulator.answering.grammar.members import ObjectShape, presences, variants
from emulator.answering.grammar.notation import counted, either, literal, python
from emulator.answering.grammar.rules import GrammarRules, NoValue
from emulator.answering.grammar.sequences import Recursion, chain
from emulator.answering.tiny.copying import CopySource
from emulator.tools import expansion
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema, reference

MAX_DEPTH = 28
"""How deeply schemas may be nested; the grammar excludes deeper values."""
MAX_LEVELS = 6
"""How deeply recursive definitions may be nested in one another."""
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$defs"})
"""Keywords that constrain nothing."""


class Values:
    """Writes the values of one tool's schema into `rules`; `prefix` makes its rules' names unique.

    With a `source`, strings and numbers are copied from it if it contains valid ones, and an enum allows only
    the values that it mentions.
    """

    def __init__(
        self,
        rules: GrammarRules,
        prefix: str,
        document: Mapping[str, Any],
        source: CopySource | None = None,
    ) -> None:
        definitions = document.get("$defs", {})
        self._rules = rules
        self._prefix = prefix
        self._definitions = definitions
        self._source = source
        self._reading = ExpandedSchema(definitions)
        self._recursion = Recursion(definitions)
        self._arrays = Arrays(rules, self._reading, self.value)
        self._level = self._depth = 0
        self._impossible: set[str] = set()

    def members(self, schema: Schema, place: str, lead: Callable[[str], str]) -> str:
        """Return the expression for an object's members, or for a call's arguments. Raises `NoValue`.

        Members are in schema order, required ones first. `lead` returns the text before a member's value:
        ``city=`` or ``"city": ``.
        """
        found: list[str] = []
        for n, shape in enumerate(variants(schema, self._reading)):
            for m, present in enumerate(presences(shape)):
                at = f"{place}-{n}-{m}" if n or m else place
                try:
                    found.append(self._sequence(shape, present, at, lead))
                except NoValue:
                    continue
        if not found:
            raise NoValue
        # An object without members is an empty alternative, which must be the last one.
        distinct = sorted(dict.fromkeys(found), key=lambda expression: not expression)
        return distinct[0] if len(distinct) == 1 else either(e or '""' for e in distinct)

    def value(self, schema: Schema, place: str) -> str:
        """Return the expression for a value of `schema`. The names of new rules start with `place`."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise NoValue
            return self._value(schema, place)
        finally:
            self._depth -= 1

    def _value(self, schema: Schema, place: str) -> str:
        if schema is False:
            raise NoValue
        if not isinstance(schema, dict):
            return self._rules.leaf("value")
        constraints = {
            keyword: part for keyword, part in schema.items() if keyword not in _ANNOTATIONS
        }
        if constraints.keys() == {"allOf"} and len(constraints["allOf"]) == 1:
            return self._value(constraints["allOf"][0], place)
        if constraints.keys() == {"$ref"} and (name := reference(schema)) is not None:
            return self._definition(name)
        view = self._reading.view(schema)
        if view.get("not") == {}:
            raise NoValue
        if "const" in view or "enum" in view:
            return self._choice(view["enum"] if "enum" in view else [view["const"]], schema)
        if parts := self._reading.alternatives(schema):
            return self._either(parts, place)
        kinds = expansion.types(view)
        if not kinds:
            return self._rules.leaf("value")
        return self._kind(kinds[0], view, schema, place)

    def _kind(self, kind: str, view: dict[str, Any], schema: Schema, place: str) -> str:
        match kind:
            case "string":
                return self._string(view, schema)
            case "integer" | "number":
                return self._number(kind, view, schema)
            case "array":
                return self._rules.add(place, f'"[" {self._arrays.items(view, place)} "]"')
            case "object":
                inside = self._object(view, schema, place)
                return self._rules.add(place, f'"{{" {inside} "}}"')
        return self._rules.leaf(kind)

    def _either(self, parts: Sequence[Schema], place: str) -> str:
        found: list[str] = []
        for n, part in enumerate(parts):
            try:
                found.append(self.value(part, f"{place}-{n}"))
            except NoValue:
                continue
        if not found:
            raise NoValue
        return either(found)

    def _choice(self, values: Sequence[Any], schema: Schema) -> str:
        valid = [v for v in values if self._reading.admits(v, schema) and scalars.is_text(v)]
        if not valid:
            raise NoValue
        mentioned = self._source.mentioned(valid) if self._source else []
        return either(literal(python(value)) for value in mentioned or valid)

    def _string(self, view: dict[str, Any], schema: Schema) -> str:
        limited = any(keyword in view for keyword in scalars.LENGTHS)
        if self._source is not None and not limited and (copied := self._source.strings()):
            return self._copied(copied)
        if self._source is not None and limited:
            runs = [run for run in self._source.runs() if self._reading.admits(run, schema)]
            if runs:
                return either(literal(python(run)) for run in runs)
        if not limited:
            return self._rules.leaf("string")
        self._rules.leaf("character")
        return scalars.string(view)

    def _copied(self, rules: Mapping[str, str]) -> str:
        if "copied" not in self._rules:
            for rule, body in rules.items():
                self._rules.add(rule, body)
        return "copied"

    def _number(self, kind: str, view: dict[str, Any], schema: Schema) -> str:
        if self._source is not None:
            found = self._source.numbers()
            valid = [n for n in found if self._reading.admits(json.loads(n), schema)]
            if valid:
                return either(map(literal, valid))
        if not any(keyword in view for keyword in scalars.BOUNDS):
            return self._rules.leaf(kind)
        return scalars.number(kind, view)

    def _object(self, view: dict[str, Any], schema: Schema, place: str) -> str:
        inside = self._reading.members(schema)
        if inside.properties:
            return self.members(schema, place, lambda name: f"{python(name)}: ")
        least, most = int(view.get("minProperties", 0)), view.get("maxProperties")
        entries = self._entries(view, place)
        if most == 0 or not entries:
            if least:
                raise NoValue
            return ""
        entry = either(entries)
        more = counted(max(least - 1, 0), None if most is None else int(most) - 1)
        all_entries = f'{entry} (", " {entry}){more}' if most != 1 else entry
        return all_entries if least else f"({all_entries})?"

    def _entries(self, view: dict[str, Any], place: str) -> list[str]:
        """Return an expression for each kind of entry of a dictionary: a key and its value."""
        names = view.get("propertyNames", True)
        pairs = [
            ({"type": "string", "pattern": pattern}, part)
            for pattern, part in view.get("patternProperties", {}).items()
        ]
        extra = view.get("additionalProperties", True)
        if not pairs:
            named = names if isinstance(names, dict) else {}
            pairs = [({"type": "string", **named}, extra)]
        found: list[str] = []
        for n, (key, part) in enumerate(pairs):
            try:
                value = self.value(part, f"{place}-of-{n}")
                found.append(f'{self.value(key, f"{place}-key-{n}")} ": " {value}')
            except NoValue:
                continue
        return found

    def _sequence(
        self,
        shape: ObjectShape,
        present: frozenset[str],
        place: str,
        lead: Callable[[str], str],
    ) -> str:
        """Return the expression for the members of one shape.

        Of its undecided members it contains those in `present`, and no others.
        """
        chosen: list[tuple[str, bool]] = []
        for n, (name, schema) in enumerate(shape.properties.items()):
            required = name in shape.required or name in present
            if not required and (name in shape.undecided or not self._has_evidence(name, schema)):
                continue
            try:
                value = self.value(schema, f"{place}-{n}")
            except NoValue:
                if required:
                    raise
                continue
            chosen.append((f"{literal(lead(name))} {value}", required))
        chosen.sort(key=lambda pair: not pair[1])
        return chain(self._rules, chosen, place, shape.least, shape.most)

    def _definition(self, name: str) -> str:
        """Return the rule of a definition, which its first use adds.

        A recursive definition has one rule for each level of nesting, up to `MAX_LEVELS`.
        """
        recursive = self._recursion.affects(name)
        self._level += recursive
        plain = re.sub("[^a-zA-Z0-9]", lambda found: f"-{ord(found[0]):x}-", name)
        rule = f"{self._prefix}-def-{plain}"
        rule += f"-{self._level}" if self._level else ""
        try:
            if rule in self._impossible or self._level > MAX_LEVELS:
                raise NoValue
            if rule not in self._rules:
                body = self.value(self._definitions.get(name, {}), f"{rule}-is")
                self._rules.add(rule, body)
        except NoValue:
            self._impossible.add(rule)
            raise
        finally:
            self._level -= recursive
        return rule

    def _has_evidence(self, name: str, schema: Schema) -> bool:
        """Return False if the model would have to invent the value of an optional member.

        That is the case for an enum, a boolean or a number that the source does not contain.
        """
        if self._source is None or not isinstance(schema, dict):
            return True
        if schema.get("enum"):
            return bool(self._source.mentioned(schema["enum"]))
        match schema.get("type"):
            case "boolean":
                return bool(self._source.mentions(name))
            case "integer" | "number":
                return bool(self._source.numbers())
        return True
