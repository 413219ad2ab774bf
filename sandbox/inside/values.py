"""Turn what a program computed into plain JSON. Knows nothing of engines or schemas.

One rule for both sides of the border: the monty engine calls `plain` in the host, the kernel
engine sends this very file into the kernel. So it imports the standard library and nothing of ours.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import types
import uuid
from collections import deque
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from typing import Any, TypeAlias

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None

MAX_DEPTH = 100

VALUE_MIME = "application/vnd.tool-emulator.value+json"
"""The shape in which a kernel displays the value of a cell, beside those for people."""
AWAITED = "_awaited_"
"""The name under which programs in a kernel find what makes any value awaitable."""

REFUSED = "!"
"""How a reply to a kernel begins that is no JSON: the call is refused, and what follows says why."""

RECORDS: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
"""How to read the fields of an engine's own record types, filled by the engine that has them."""


_ARRAYS = (list, tuple, set, frozenset, deque, range, KeysView, ValuesView, ItemsView)

# bool before int, as a bool is one; the str and int of an Enum mixin are its value already.
_LEAVES: tuple[tuple[Any, Callable[[Any], JSON]], ...] = (
    ((types.NoneType, bool), lambda value: value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    ((decimal.Decimal, uuid.UUID, pathlib.PurePath), str),
)


class NotPlain(TypeError):
    """A value that JSON has no shape for; the message names the type and where it sat."""


def plain(value: Any, where: str = "value", depth: int = 0) -> JSON:
    """Return `value` as JSON data.

    Dataclass, pydantic and namespace objects and instances of the program's own classes -> dict;
    Enum -> its value; date, datetime, time -> isoformat; tuple, set, range, dict views -> list;
    Decimal, UUID, Path -> str; numpy scalars and arrays -> their `tolist()`.
    Raises NotPlain for all else (bytes, functions, nan, ...) and for nesting deeper than MAX_DEPTH.
    """
    if depth > MAX_DEPTH:
        raise NotPlain(f"{where} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, float) and not math.isfinite(value):
        raise NotPlain(f"{where} is {value!r}, which JSON cannot hold")
    for kinds, convert in _LEAVES:
        if isinstance(value, kinds):
            return convert(value)
    if isinstance(value, enum.Enum):
        return plain(value.value, where, depth + 1)
    if isinstance(value, Mapping):
        return {
            _key(key, where): plain(item, f"{where}[{key!r}]", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, _ARRAYS):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    fields = _fields(value)
    if fields is not None:
        return {
            name: plain(item, f"{where}.{name}", depth + 1)
            for name, item in fields.items()
            if not name.startswith("_")
        }
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), where, depth + 1)
    raise NotPlain(f"{where} is of type {type(value).__name__}, which JSON cannot hold")


def _key(key: Any, where: str) -> str:
    """A dict key as json.dumps would write it."""
    value = plain(key, f"a key of {where}")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    raise NotPlain(f"{where} has a key of type {type(key).__name__}; JSON keys are strings")


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of a record-like object, or None for anything that is not a record."""
    kind = type(value)
    if kind in RECORDS:
        return RECORDS[kind](value)
    if isinstance(value, type | types.FunctionType | types.ModuleType | BaseException):
        return None
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    pydantic_fields = getattr(kind, "model_fields", None)
    if isinstance(pydantic_fields, Mapping):
        return {name: getattr(value, name) for name in pydantic_fields}
    if isinstance(value, types.SimpleNamespace) or kind.__module__ == "__main__":
        return getattr(value, "__dict__", None)
    return None
