"""Convert an argument to the type that its schema requires, if the schema leaves only one reading.

A valid value stays as it is. Models write ``"3"`` for 3 and ``"Celsius"`` for ``"celsius"``; where
the schema requires an integer or has that choice, nothing else can be meant. If two readings are
possible, the value stays unchanged and is reported as a problem. Defaults are never filled in;
only null is, where a strict schema demands a member that may be null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from emulator.tools import expansion, names
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema, guard_values
from emulator.tools.validator import same
from sandbox.parsing import literal

#: Limits of an object or array that is written as text; MAX_LITERAL: characters, if it is Python.
MAX_DEPTH = 64
MAX_VALUES = 50_000
MAX_LITERAL = 2**16
#: Limit of alternatives tried for one call, for long lists of wide unions. Further values are not coerced.
MAX_ATTEMPTS = 20_000

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}(\.0{1,9})?")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{1,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?")
_NOT_COERCED = object()


def to_integer(value: Any) -> Any:
    """``"3"`` and ``3.0`` are 3; ``"3.5"``, ``"three"`` and true are not integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return _NOT_COERCED


def to_number(value: Any) -> Any:
    """``"2.5"`` is 2.5; ``"1,000"`` and ``"5 km"`` have more than one reading."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value) if set(value) & set(".eE") else int(value)
    return _NOT_COERCED


def to_string(value: Any) -> Any:
    """The JSON text of a number or a boolean: ``zip=10115`` is "10115", True is "true"."""
    return json.dumps(value) if isinstance(value, int | float) else _NOT_COERCED


_WORDS: dict[str, dict[str, Any]] = {
    "boolean": {"true": True, "false": False},
    "null": {"null": None, "none": None},
}


def _to_word(kind: str) -> Callable[[Any], Any]:
    """``"true"`` in any case is a boolean; 1 and ``"yes"`` are not."""
    words = _WORDS[kind]
    return lambda value: (
        words.get(value.strip().lower(), _NOT_COERCED) if isinstance(value, str) else _NOT_COERCED
    )


class ResultText(str):
    """The text of a result that an argument passes on. Its ``value`` is the JSON value that it spells."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, text: str, value: Any) -> ResultText:
        created = super().__new__(cls, text)
        created.value = value
        return created


#: type -> conversion of a value of another type.
SCALARS: dict[str, Callable[[Any], Any]] = {
    "integer": to_integer,
    "number": to_number,
    "boolean": _to_word("boolean"),
    "string": to_string,
    "null": _to_word("null"),
}


class Coercion:
    """Coerces the values of one call, under one tool's schema."""

    def __init__(self, expanded: ExpandedSchema) -> None:
        self.expanded = expanded
        self._attempts = 0
        self._coerced: dict[tuple[int, int, bool], tuple[Any, Schema, Any]] = {}

    def members(self, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        """Coerce an object's members. A member that is None, optional and not nullable is dropped."""
        expected = self.expanded.members(schema)
        wire_names = {p: n for n, p in names.parameter_names(expected.properties).items()}
        coerced: dict[str, Any] = {}
        for key, member in value.items():
            name = key
            if key not in expected.properties and wire_names.get(key, key) not in value:
                name = wire_names.get(key, key)
            part = expected.schema_of(name)
            if part is None:
                coerced[name] = _with_values(member)
            elif (
                member is not None or name in expected.required or self.expanded.admits(None, part)
            ):
                coerced[name] = self.value(member, part)
        omitted = [n for n in expected.properties if n in expected.nulls and n not in coerced]
        return coerced | dict.fromkeys(omitted)

    def value(self, value: Any, schema: Schema, *, wrapped: bool = False) -> Any:
        """Return the one valid value that `value` can mean under `schema`, or `value` itself.

        `wrapped`: the value is in a list that was created for it, so it is not wrapped again.
        """
        if isinstance(value, ResultText):
            value = value.value if self.expanded.admits(value.value, schema) else str(value)
        key = (id(value), id(schema), wrapped)
        if key not in self._coerced:
            self._coerced[key] = (value, schema, self._coerce(value, schema, wrapped))
        return self._coerced[key][2]

    def _coerce(self, value: Any, schema: Schema, wrapped: bool) -> Any:
        view = self.expanded.view(schema)
        if "enum" in view or "const" in view:
            return _choice(value, [view["const"]] if "const" in view else view["enum"])
        parts = self.expanded.alternatives(schema)
        if parts:
            return self._union(value, parts, schema, wrapped)
        kinds = expansion.types(view)
        if not kinds:
            return _with_values(value)
        return self._single(value, kinds[0], view, schema, wrapped)

    def _single(
        self, value: Any, kind: str, view: dict[str, Any], schema: Schema, wrapped: bool
    ) -> Any:
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)  # valid as it is, but 3.0 is no int to a client in most languages
        if expansion.is_of(value, kind):
            return self._coerce_children(value, kind, view, schema)
        if kind in SCALARS:
            coerced = SCALARS[kind](value)
            return value if coerced is _NOT_COERCED else coerced
        if isinstance(value, str):
            coerced = _parse_literal(value)
            if expansion.is_of(coerced, kind):
                coerced = self._coerce_children(coerced, kind, view, schema)
                if self.expanded.admits(coerced, schema):
                    return coerced
            is_text = coerced is _NOT_COERCED or not self.expanded.admits(value, _item(view, 0))
            if kind == "array" and (_is_list(value) or not is_text):
                return value  # an object, or a list that cannot be read, is not a list of one text
        if kind == "array" and value is not None and not wrapped:
            coerced = [self.value(value, _item(view, 0), wrapped=True)]
            if self.expanded.admits(coerced, schema):
                return coerced
        return value

    def _coerce_children(self, value: Any, kind: str, view: dict[str, Any], schema: Schema) -> Any:
        if kind == "object":
            return self.members(value, schema)
        if kind == "array":
            return [self.value(each, _item(view, n)) for n, each in enumerate(value)]
        return value

    def _union(self, value: Any, parts: tuple[Schema, ...], schema: Schema, wrapped: bool) -> Any:
        valid = self.expanded.admits(value, schema)
        if valid and not isinstance(value, dict | list | float):
            return value
        readings: list[Any] = []
        for part in parts:
            self._attempts += 1
            if self._attempts > MAX_ATTEMPTS:
                return value
            if valid and not self.expanded.admits(value, part):
                continue
            coerced = self.value(value, part, wrapped=wrapped)
            known = any(type(coerced) is type(each) and same(coerced, each) for each in readings)
            if not known and self.expanded.admits(coerced, schema):
                readings.append(coerced)
        if len(readings) == 1:
            return readings[0]
        matching = [part for part in parts if self.expanded.matches_kind(value, part)]
        if not readings and len(matching) == 1:  # so that the problem inside it can be reported
            return self.value(value, matching[0], wrapped=wrapped)
        return value


def _choice(value: Any, choices: list[Any]) -> Any:
    """Return the choice that equals `value` except for case, punctuation or type."""
    if any(same(value, choice) for choice in choices):
        return value
    if isinstance(value, str) and _letters_and_digits(value):
        texts = [choice for choice in choices if isinstance(choice, str)]
        readings = [
            text for text in texts if _letters_and_digits(text) == _letters_and_digits(value)
        ]
        if readings:
            return readings[0] if len(readings) == 1 else value
    coerced = [rule(value) for rule in SCALARS.values()]
    readings = [choice for choice in choices if any(same(choice, each) for each in coerced)]
    return readings[0] if len(readings) == 1 else value


def _with_values(value: Any) -> Any:
    """``value`` for a place without a type: results in it are the JSON values that their texts spell."""
    if isinstance(value, dict):
        return {key: _with_values(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_values(member) for member in value]
    return value.value if isinstance(value, ResultText) else value


def _item(view: dict[str, Any], n: int) -> Schema:
    first = view.get("prefixItems", [])
    part: Schema = first[n] if n < len(first) else view.get("items", True)
    return part


def _parse_literal(text: str) -> Any:
    """Parse text of an object or array, which small models often send, as JSON or as a Python literal."""
    if text.strip()[:1] not in ("{", "[", "("):
        return _NOT_COERCED
    for read in (json.loads, _python_literal):
        try:
            parsed = read(text)
            guard_values([("", parsed)], MAX_DEPTH, MAX_VALUES, len(text))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        return parsed
    return _NOT_COERCED


def _python_literal(text: str) -> Any:
    if len(text) > MAX_LITERAL:
        raise ValueError("too long")
    return json.loads(json.dumps(literal(text.strip()), allow_nan=False))  # a tuple becomes a list


def _is_list(text: str) -> bool:
    return text.strip()[:1] == "[" and text.strip()[-1:] == "]"


def _letters_and_digits(text: str) -> str:
    """Return only the letters and digits: ``Km/h`` and ``km_h`` are the same choice."""
    return "".join(c for c in text.casefold() if c.isalnum())
