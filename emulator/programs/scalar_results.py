"""Results that are numbers, booleans or null: a program holds their texts, and gets their values where it
uses a number.

`1.10`, `1e5`, `true` and `null` print differently as Python values than as the text that the tool sent. So
a program gets such a result as its text, which it can print, format, join and compare as any text. Where
it uses a number (`number_uses.py`), a function of `ScalarResults.preamble` looks up the text: a text of a
result becomes its value, anything else stays unchanged.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.programs.program import CallRecord
from emulator.tools.coercion import ResultText

_MAX_CHARACTERS = 400
"""Longer texts are no results of one number."""
_NONCE = secrets.token_hex(16)
"""Marks, among the arguments of a call, the text of a result."""

_FUNCTIONS = f"""
def _check_number(value):
    if type(value) is str and value in _check_values:
        return _check_values[value]
    return value


def _check_truth(value):
    number = _check_number(value)
    return value if number else number


def _check_numbers(value):
    if type(value) is list:
        return [_check_numbers(item) for item in value]
    if type(value) is tuple:
        return tuple([_check_numbers(item) for item in value])
    if type(value) is dict:
        return {{key: _check_numbers(item) for key, item in value.items()}}
    return _check_number(value)


def _check_by(key):
    if key is None:
        return _check_numbers
    return lambda value: _check_numbers(key(value))


def _check_sent(value):
    if type(value) is list or type(value) is tuple:
        return [_check_sent(item) for item in value]
    if type(value) is dict:
        return {{key: _check_sent(item) for key, item in value.items()}}
    if type(value) is str and value in _check_values:
        return {{"result": {_NONCE!r}, "text": value}}
    return value


def _check_each(items):
    return map(_check_numbers, items)


def _check_operation(operation):
    sign, one, other = operation
    if sign == "==" or sign == "!=":
        if type(one) is str:
            other = _check_text(other)
        if type(other) is str:
            one = _check_text(one)
        if type(other) is not str:
            one = _check_number(one)
        if type(one) is not str:
            other = _check_number(other)
    elif type(one) is not str or type(other) is not str or (
        one in _check_values and other in _check_values
    ):
        one, other = _check_number(one), _check_number(other)
    if sign == "+=":
        one += other
        return one
    return _check_signs[sign](one, other)


_check_signs = {{
    "+": lambda one, other: one + other,
    "%": lambda one, other: one % other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}}


def _check_text(value):
    if (type(value) is int or type(value) is float) and value in _check_plain:
        return str(value)
    return value


def _check_key(pair):
    container, key = pair
    if type(key) is str:
        other = _check_number(key)
        is_other = other is not key and _check_text(other) is other
    else:
        other = _check_text(key)
        is_other = other is not key
    if is_other and type(container) is not str and key not in container and other in container:
        return other
    return key


def _check_index(pair):
    container, key = pair
    return _check_key(pair) if isinstance(container, dict) else _check_number(key)
"""


@dataclass(frozen=True)
class ScalarResults:
    """The results of one program that it holds as texts."""

    values: Mapping[str, Any]
    """Text -> value."""
    plain: Collection[float]
    """The numbers among the other results, which Python prints as the tool did. A program gets them as
    numbers; compared with a text they are texts."""

    def __bool__(self) -> bool:
        return bool(self.values or self.plain)

    @property
    def preamble(self) -> str:
        """What must run before a program whose uses of numbers have been rewritten."""
        if not self:
            return ""
        return f"_check_values = {dict(self.values)!r}\n_check_plain = {list(self.plain)!r}\n{_FUNCTIONS}"

    def unmarked(self, argument: Any) -> Any:
        """An argument of a call, as an engine reports it, with a `ResultText` for each text of a result."""
        if isinstance(argument, list | tuple):
            return [self.unmarked(item) for item in argument]
        if not isinstance(argument, dict):
            return argument
        if argument.get("result") == _NONCE:
            text = str(argument.get("text"))
            return ResultText(text, self.values.get(text))
        return {key: self.unmarked(item) for key, item in argument.items()}


NO_SCALARS = ScalarResults({}, ())


def is_respelled(record: CallRecord) -> bool:
    """Return True if the result is a scalar, and Python prints its value differently than the tool."""
    return _is_scalar(record) and record.text != str(record.result)


def scalar_results(recorded: Iterable[CallRecord], read_as_text: Collection[str]) -> ScalarResults:
    """The scalars among the results, where a program also reads those of the tools ``read_as_text`` as
    text."""
    values: dict[str, Any] = {}
    plain: list[float] = []
    for record in filter(_is_scalar, recorded):
        if is_respelled(record) or record.call.name in read_as_text:
            values[str(record.text)] = record.result
        elif record.result is not None and not isinstance(record.result, bool):
            plain.append(record.result)
    return ScalarResults(values, plain)


def _is_scalar(record: CallRecord) -> bool:
    return (
        record.text is not None
        and len(record.text) <= _MAX_CHARACTERS
        and (record.result is None or isinstance(record.result, bool | int | float))
    )
