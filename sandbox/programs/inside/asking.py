"""Wrap what asks a value without calling a slot of it: ``isinstance``, ``type``, patterns, ``json``; and what
makes a text of values: ``join``, ``format``, ``%``.

`install` changes the modules once, in the server; `names` are the functions that a program sees instead of
the built-in ones.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from sandbox.programs.inside.notation import number_text, written_text
from sandbox.programs.inside.results import (
    ToolError,
    answers,
    arrived,
    converted,
    failed_in,
    failure,
    is_failed,
    is_unknown,
    passed_failures,
    seen,
)

_SEARCHES = {"findall": "search", "finditer": "search"}
"""The question of a pattern's method, if it is another method."""
PATTERN_METHODS = ("match", "search", "fullmatch", *_SEARCHES)
_MADE = ("sub", "split")
_MAKES_TEXT = {(str, "format"), *((re.Pattern, name) for name in _MADE)}
"""What these make of a failure is a failure."""


class _Asking(type):
    """The type of `Type`: ``type(x)`` names the type that x is like."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1:
            return builtins.type(*args, **kwargs)
        kind = builtins.type(arrived(args[0]))
        return getattr(kind, "like", kind)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type)

    def __repr__(cls) -> str:
        return "<class 'type'>"

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    __hash__ = type.__hash__


class Type(type, metaclass=_Asking):
    """``type`` in a program."""


def _is_instance(value: Any, kind: Any) -> bool:
    """The type of a failure is an answer only if it is an exception: ``gather(return_exceptions=True)``."""
    answer = isinstance(arrived(value), kind)
    if answer and isinstance(value, ToolError):
        seen(value)
    return answer


NAMES: dict[str, Any] = {"type": Type, "isinstance": _is_instance}


NOTICED = frozenset((*PATTERN_METHODS, *_MADE, "join", "format", "get"))


def item(container: Any, key: Any) -> Any:
    """``container[key]``."""
    return container[_key(container, key)]


def _key(container: Any, key: Any) -> Any:
    """`key`, or its text if it is a number that only its text finds: ``{"1.10": "LTS"}[version]``."""
    text = number_text(key)
    return text if text is not None and type(container) is dict and key not in container else key


def attribute(value: Any, name: str) -> Any:
    """``getattr(value, name)``, for the names of `NOTICED`."""
    if name == "get" and type(value) is dict:
        return lambda key, default=None: value.get(_key(value, key), default)
    found = getattr(value, name)
    if type(value) is re.Pattern and name in PATTERN_METHODS:
        return _asked(found, getattr(value, _SEARCHES.get(name, name)))
    if (type(value), name) in _MAKES_TEXT:
        return _made(found)
    if type(value) is not str or name != "join":
        return found

    def join(items: Any) -> Any:
        # A number is joined as its text: models join what a tool returned.
        texts = [item if (text := number_text(item)) is None else text for item in items]
        return _carried(found(texts), texts)

    return join


def percent(text: Any, values: Any) -> Any:
    """``text % values``."""
    parts = values.values() if isinstance(values, dict) else values
    made = text % values
    return _carried(made, parts if isinstance(values, tuple | dict) else [values])


def _carried(made: Any, parts: Iterable[Any]) -> Any:
    """What is made of `parts` is a failure if one of them is."""
    failed = failed_in(parts)
    return failure(made, failed) if failed else made


def _made(function: Any) -> Any:
    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        return _carried(function(*args, **kwargs), (*args, *kwargs.values()))

    return made


def install(on_caught: Callable[[BaseException], None]) -> None:
    """`on_caught` is called with each exception that ``contextlib.suppress`` suppresses."""
    patterns = {name: getattr(re, name) for name in PATTERN_METHODS}
    for name, function in patterns.items():
        setattr(re, name, _asked(function, patterns[_SEARCHES.get(name, name)]))
    for name in _MADE:
        setattr(re, name, _made(getattr(re, name)))
    for module, name in (
        (builtins, "callable"),
        (builtins, "id"),
        (operator, "is_"),
        (operator, "is_not"),
    ):
        setattr(module, name, _arrived(getattr(module, name)))
    json.loads, json.dumps = _loads(json.loads), _dumps(json.dumps)
    suppress: Any = contextlib.suppress
    leave = suppress.__exit__

    def leave_noted(manager: Any, kind: Any, error: Any, trace: Any) -> bool:
        is_suppressed = bool(leave(manager, kind, error, trace))
        if is_suppressed and error is not None:
            on_caught(error)
        return is_suppressed

    suppress.__exit__ = leave_noted


def _asked(function: Any, question: Any) -> Any:
    """A pattern's method: a match is a look, unless the pattern matches every text."""

    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> Any:
        values = (*map(arrived, args), *map(arrived, kwargs.values()))
        for failed in filter(is_failed, values):

            def asked(value: Any, failed: Any = failed) -> Any:
                return question(
                    *(value if one is failed else one for one in args),
                    **{key: value if one is failed else one for key, one in kwargs.items()},
                )

            if answers(asked, failed):
                seen(failed)
        return function(*args, **kwargs)

    return ask


def _arrived(function: Any) -> Any:
    @functools.wraps(function)
    def of_arrived(*args: Any, **kwargs: Any) -> Any:
        return function(*map(arrived, args), **kwargs)

    return of_arrived


def _loads(loads: Any) -> Any:
    """A result that is JSON may be parsed again: models do not know that it is parsed already."""

    @functools.wraps(loads)
    def loads_again(text: Any, *args: Any, **kwargs: Any) -> Any:
        if is_failed(text):
            value = text
            if isinstance(text, str):
                value = converted(lambda plain: loads(plain, *args, **kwargs), text)
            return failure(value, text.failed)
        if not is_unknown(text):
            text = text if (written := written_text(text)) is None else written
        return loads(text, *args, **kwargs)

    return loads_again


def _dumps(dumps: Any) -> Any:
    @functools.wraps(dumps)
    def dumps_carrying(value: Any, *args: Any, **kwargs: Any) -> Any:
        failed = frozenset(passed_failures(value))
        text = dumps(value, *args, **kwargs)
        return failure(text, failed) if failed else text

    return dumps_carrying
