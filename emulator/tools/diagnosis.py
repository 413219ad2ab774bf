"""Explain why a value is not valid: where, what was expected, what was found.

The validator's verdict is used (`ExpandedSchema`), its explanations are not: for unions inside
recursive schemas they grow exponentially (a wrong filter expression five levels deep took a
second). This module therefore descends itself, into the parts that do not admit their value, and
asks the validator for the errors of one level at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from emulator.tools import names
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.problems import Problem, format_value, shorten
from emulator.tools.schema import Schema
from emulator.tools.schema_models import Catalog
from emulator.tools.type_trees import annotation
from emulator.tools.validator import compile_validator

MAX_PROBLEMS = 8

#: Keywords about the parts of a value, and how each is reduced to one level.
_LEVEL: dict[str, Callable[[Any], Any]] = {
    "properties": lambda named: dict.fromkeys(named, True),
    "patternProperties": lambda named: dict.fromkeys(named, True),
    "additionalProperties": lambda extra: extra is not False,
    "prefixItems": lambda first: [True] * len(first),
    "items": lambda rest: rest is not False,
}

#: Keywords whose errors are not collected; the message if nothing else is wrong.
_INVOLVED = {
    "anyOf": "fits none of the alternatives",
    "oneOf": "must fit exactly one of the alternatives",
    "not": "is a value that is excluded",
    "if": "breaks a condition on its other members",
    "then": "",
    "else": "",
    "dependentSchemas": "breaks a condition on its other members",
    "unevaluatedProperties": "has an unknown member",
    "unevaluatedItems": "has too many items",
    "contains": "lacks an item of the required kind",
    "propertyNames": "has a member whose name is not allowed",
}

_Wording = Callable[[dict[str, Any]], str]

#: What a keyword requires, from the facts of the validator's error.
_EXPECTED: dict[str, _Wording] = {
    "enum": lambda k: f"one of {shorten(', '.join(map(format_value, k['options'])), 400)}",
    "const": lambda k: format_value(k["expected_value"]),
    "minimum": lambda k: f"at least {format_value(k['limit'])}",
    "maximum": lambda k: f"at most {format_value(k['limit'])}",
    "exclusiveMinimum": lambda k: f"more than {format_value(k['limit'])}",
    "exclusiveMaximum": lambda k: f"less than {format_value(k['limit'])}",
    "multipleOf": lambda k: f"a multiple of {format_value(k['multiple_of'])}",
    "minLength": lambda k: f"at least {_pluralize(k['limit'], 'character')}",
    "maxLength": lambda k: f"at most {_pluralize(k['limit'], 'character')}",
    "minItems": lambda k: f"at least {_pluralize(k['limit'], 'item')}",
    "maxItems": lambda k: f"at most {_pluralize(k['limit'], 'item')}",
    "minProperties": lambda k: f"at least {_pluralize(k['limit'], 'member')}",
    "maxProperties": lambda k: f"at most {_pluralize(k['limit'], 'member')}",
    "uniqueItems": lambda _: "no item twice",
    "pattern": lambda k: f"text that matches {shorten(k['pattern'], 200)}",
}


@dataclass(frozen=True)
class Diagnosis:
    """Finds the problems of values under one tool's definitions."""

    expanded: ExpandedSchema

    def problems(self, value: Any, schema: Schema) -> tuple[Problem, ...]:
        """Return at most `MAX_PROBLEMS` reasons why `schema` does not admit `value`; () if it does."""
        return tuple(islice(self._reasons(value, schema, ""), MAX_PROBLEMS))

    def _reasons(self, value: Any, schema: Schema, path: str) -> Iterator[Problem]:
        if self.expanded.admits(value, schema):
            return
        parts = self.expanded.alternatives(schema)
        if parts:
            matching = [part for part in parts if self.expanded.matches_kind(value, part)]
            inside = self._reasons(value, matching[0], path) if len(matching) == 1 else iter(())
            yield next(inside, None) or self._unexpected(value, self._annotation(schema), path)
            yield from inside
            return
        view = self.expanded.view(schema)
        unexplained = True
        for problem in self._level(value, view, schema, path):
            unexplained = False
            yield problem
        for part, inner, step in self._parts(value, schema, view, path):
            for problem in self._reasons(part, inner, step):
                unexplained = False
                yield problem
        if unexplained:
            yield self._unexplained_problem(value, view, path)

    def _level(
        self, value: Any, view: dict[str, Any], schema: Schema, path: str
    ) -> Iterator[Problem]:
        level = {
            keyword: _LEVEL.get(keyword, lambda same: same)(text)
            for keyword, text in view.items()
            if keyword not in _INVOLVED
        }
        for error in compile_validator(level).iter_errors(value):
            facts = error.kind.as_dict()
            keyword = error.kind.name
            if keyword == "required":
                yield self._missing(str(facts["property"]), schema, path)
            elif keyword == "additionalProperties":
                named = ", ".join(f'"{shorten(str(name))}"' for name in facts["unexpected"])
                known = ", ".join(self.expanded.members(schema).properties)
                message = f"unknown member {shorten(named, 200)}; expected {shorten(known, 400)}"
                yield Problem(path, message)
            elif keyword == "type":
                yield self._unexpected(value, self._annotation(schema), path)
            elif keyword in _EXPECTED:
                yield self._unexpected(value, _EXPECTED[keyword](facts), path)
            else:
                yield Problem(path, shorten(error.message, 200))

    def _parts(
        self, value: Any, schema: Schema, view: dict[str, Any], path: str
    ) -> Iterator[tuple[Any, Schema, str]]:
        if isinstance(value, dict):
            inside = self.expanded.members(schema)
            written = names.parameter_names(inside.properties)
            for name, member in value.items():
                part = inside.schema_of(name)
                if part is not None:
                    step = written.get(name, str(name))
                    yield member, part, shorten(f"{path}.{step}" if path else step, 200)
        elif isinstance(value, list):
            first = view.get("prefixItems", [])
            for n, item in enumerate(value):
                yield item, first[n] if n < len(first) else view.get("items", True), f"{path}[{n}]"

    def _annotation(self, schema: Schema) -> str:
        # A separate catalog: the names may lack a number that the stubs had to add.
        tree = Catalog(frozenset()).tree(schema, self.expanded.definitions, hint="object")
        return shorten(annotation(tree), 400)

    def _unexpected(self, value: Any, expected: str, path: str) -> Problem:
        return Problem(path, f"expected {expected}, found {format_value(value)}")

    def _missing(self, name: str, schema: Schema, path: str) -> Problem:
        inside = self.expanded.members(schema)
        expected = self._annotation(inside.properties.get(name, True))
        written = names.parameter_names(inside.properties).get(name, name)
        kind = "member" if path else "argument"
        return Problem(path, f'missing {kind} "{shorten(written)}" ({expected})')

    def _unexplained_problem(self, value: Any, view: dict[str, Any], path: str) -> Problem:
        found = format_value(value)
        for keyword, message in _INVOLVED.items():
            alone = {k: view[k] for k in (keyword, "then", "else") if k in view}
            if keyword in view and message and not self.expanded.admits(value, alone):
                text = message
                required = (
                    [b.get("required", ()) for b in view[keyword] if isinstance(b, dict)]
                    if (isinstance(view[keyword], list))
                    else []
                )
                if required and all(required):
                    either = " or ".join(" and ".join(r) for r in required)
                    text = f"{message}: needs {shorten(either, 200)}"
                return Problem(path, f"{text} (found {found})")
        return Problem(path, f"not valid (found {found})")


def _pluralize(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
