"""Results as values that remember how the tool wrote them.

``1.10`` is a number that prints as ``1.10``, equals ``"1.10"``, and that a string parameter gets as ``1.10``.
An object or array prints as its text. All answer the methods of their text, so that ``run("wc -l").strip()``
and ``r[0].upper()`` work on a text that happens to be JSON. But a number is no sequence: code that takes its
arguments apart by their type (flatten) would find digits in it.

Only the value that the host made has a notation. What a program makes of its type (``type(x)(y)``, ``mean``),
copies or pickles is of the base type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

Place = tuple[int | str, ...]
"""The keys and indices that lead to a value."""


_WIDTH = re.compile(r"(.?[<>^])?[1-9][0-9]*")
"""A format that only pads, as numbers are padded."""


def _base_methods(base: Any) -> dict[str, Any]:
    """What a program makes of the type, or copies, is of the base type."""

    def find(self: Any, name: str) -> Any:
        """A method of its text, for a value that a program treats as text."""
        if name.startswith("_") or not hasattr(str, name):
            raise AttributeError(f"{base.__name__!r} object has no attribute {name!r}")
        return getattr(self.text, name)

    return {
        "like": base,
        "__getattr__": find,
        "__new__": lambda cls, *args, **kwargs: base(*args, **kwargs),  # noqa: ARG005
        "__reduce_ex__": lambda self, protocol: (base, (base(self),)),  # noqa: ARG005
        "__hash__": base.__hash__,
    }


def _text_operators(base: Any) -> dict[str, Any]:
    def added(self: Any, other: Any) -> Any:
        return self.text + other if isinstance(other, str) else base.__add__(self, other)

    def added_to(self: Any, other: Any) -> Any:
        return other + self.text if isinstance(other, str) else NotImplemented

    def equals(self: Any, other: Any) -> Any:
        return self.text == other if isinstance(other, str) else base.__eq__(self, other)

    return {"__radd__": added_to, "__eq__": equals} | ({"__add__": added} if base is list else {})


def _number(base: Any) -> Any:
    def written(self: Any, spec: str = "") -> Any:
        if not spec:
            return self.text
        if (pads := _WIDTH.fullmatch(spec)) is None:
            return base.__format__(self, spec)
        return format(self.text, spec if pads[1] else f">{spec}")

    def equals(self: Any, other: Any) -> Any:
        """Two results are equal as texts if one says more than its value: version 3.10 is not 3.1."""
        theirs = other if isinstance(other, str) else number_text(other)
        is_text = isinstance(other, str)
        if theirs is not None and not is_text:
            is_text = not (_is_plain(self) and _is_plain(other))
        return self.text == theirs if is_text else base.__eq__(self, other)

    shown = {"__str__": written, "__repr__": written, "__format__": written, "__eq__": equals}
    return type(base.__name__, (base,), _base_methods(base) | shown)


def _object(base: Any) -> Any:
    def written(self: Any) -> str:
        return base.__repr__(self) if (text := written_text(self)) is None else text

    def item(self: Any, key: Any) -> Any:
        return (
            self.text[key]
            if isinstance(key, slice) and base is dict
            else base.__getitem__(self, key)
        )

    def contains(self: Any, item: Any) -> bool:
        """Words that are no item are looked for in the text."""
        has_words = isinstance(item, str) and " " in item.strip()
        return base.__contains__(self, item) or (has_words and item in self.text)

    methods = {"__str__": written, "__getitem__": item, "__contains__": contains}
    return type(base.__name__, (base,), _base_methods(base) | _text_operators(base) | methods)


def _is_plain(number: Any) -> bool:
    return bool(json.dumps(number) == number.text)


_TYPES: dict[Any, Any] = {
    int: _number(int),
    float: _number(float),
    dict: _object(dict),
    list: _object(list),
    str: type("str", (str,), _base_methods(str)),
}
_WRITTEN = frozenset(_TYPES.values())


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def result(text: str, *, as_text: bool = False) -> Any:
    """A result as the program gets it: the JSON value that `text` spells, in its notation, else `text`."""
    try:
        value = text if as_text else _DECODER.decode(text)
    except (ValueError, RecursionError):
        return text
    if type(value) not in _TYPES or value is text:
        return value
    base: Any = type(value)
    written = base.__new__(_TYPES[base], value)  # a call of the type makes a value of the base type
    base.__init__(written, value)
    written.text = text
    return written


def written_text(value: Any) -> str | None:
    """How the tool wrote `value`, if it is a whole result; None for others, and after a change of it."""
    if type(value) not in _WRITTEN:
        return None
    text: str = value.text
    if isinstance(value, dict | list) and _DECODER.decode(text) != value:
        return None
    return text


def number_text(value: Any) -> str | None:
    """How the tool wrote `value`, if it is a number; None otherwise."""
    return value.text if type(value) in (_TYPES[int], _TYPES[float]) else None


def texts_in(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """The place and the text of each whole result in the arguments of a call. JSON strings need none."""
    text = None if isinstance(value, str) else written_text(value)
    if text is not None:
        yield place, text
    if isinstance(value, dict):
        for key, item in dict.items(value):
            if isinstance(key, str):
                yield from texts_in(item, (*place, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts_in(item, (*place, index))
