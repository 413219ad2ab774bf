"""Wrap what asks a value without calling a slot of it: ``isinstance``, ``type``, patterns, ``json``.

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
from collections.abc import Callable
from typing import Any

from sandbox.programs.inside.notation import number_text, written_text
from sandbox.programs.inside.results import (
    WATCH,
    failed_in,
    failure,
    is_failed,
    is_unknown,
    plain_text,
    seen,
)

PATTERN_METHODS = ("match", "search", "fullmatch", "findall", "finditer")


class _Asking(type):
    """The type of `Type`: ``type(x)`` looks at x, and names the type that x is like."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1:
            return builtins.type(*args, **kwargs)
        kind = builtins.type(seen(args[0]))
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
    return isinstance(seen(value), kind)


NAMES: dict[str, Any] = {"type": Type, "isinstance": _is_instance}


NOTICED = frozenset((*PATTERN_METHODS, "join", "format", "get"))


def item(container: Any, key: Any) -> Any:
    """``container[key]``."""
    return container[_key(container, key)]


def _key(container: Any, key: Any) -> Any:
    """`key`, or its text if it is a number that only its text finds: ``{"1.10": "LTS"}[version]``."""
    text = number_text(key)
    return text if text is not None and type(container) is dict and key not in container else key


def attribute(value: Any, name: str) -> Any:
    """``getattr(value, name)``, for the names of `NOTICED`: a pattern's methods look at the text, and what
    ``join`` and ``format`` make of failures is a failure."""
    if name == "get" and type(value) is dict:
        return lambda key, default=None: value.get(_key(value, key), default)
    found = getattr(value, name)
    if type(value) is re.Pattern:
        return _looking(found, seen)
    if type(value) is not str or name not in ("join", "format"):
        return found

    def carry(*args: Any, **kwargs: Any) -> Any:
        if name == "join" and len(args) == 1:
            # A number is joined as its text: models join what a tool returned.
            args = ([one if (text := number_text(one)) is None else text for one in args[0]],)
        parts = args[0] if name == "join" and args else (*args, *kwargs.values())
        failed = failed_in(parts)
        result = found(*args, **kwargs)
        return failure(result, failed) if failed else result

    return carry


def install(on_caught: Callable[[BaseException], None]) -> None:
    """`on_caught` is called with each exception that ``contextlib.suppress`` suppresses."""
    for module, names, see in (
        (re, PATTERN_METHODS, seen),
        (builtins, ("callable", "id"), _arrived),
        (operator, ("is_", "is_not"), seen),
    ):
        for name in names:
            setattr(module, name, _looking(getattr(module, name), see))
    json.loads, json.dumps = _loads(json.loads), _dumps(json.dumps)
    suppress: Any = contextlib.suppress
    leave = suppress.__exit__

    def leave_noted(manager: Any, kind: Any, error: Any, trace: Any) -> bool:
        is_suppressed = bool(leave(manager, kind, error, trace))
        if is_suppressed and error is not None:
            on_caught(error)
        return is_suppressed

    suppress.__exit__ = leave_noted


def _looking(function: Any, see: Callable[[Any], Any]) -> Any:
    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            see(value)
        return function(*args, **kwargs)

    return looking


def _arrived(value: Any) -> None:
    if is_unknown(value):
        WATCH.look()


def _loads(loads: Any) -> Any:
    """A result that is JSON may be parsed again: models do not know that it is parsed already."""

    @functools.wraps(loads)
    def loads_again(text: Any, *args: Any, **kwargs: Any) -> Any:
        if is_failed(text):
            seen(text)
            value = loads(plain_text(text), *args, **kwargs) if isinstance(text, str) else text
            return failure(value, text.failed)
        if not is_unknown(text):
            text = text if (written := written_text(text)) is None else written
        return loads(text, *args, **kwargs)

    return loads_again


def _dumps(dumps: Any) -> Any:
    @functools.wraps(dumps)
    def dumps_carrying(value: Any, *args: Any, **kwargs: Any) -> Any:
        text = dumps(value, *args, **kwargs)
        return failure(text, value.failed) if is_failed(value) else text

    return dumps_carrying
