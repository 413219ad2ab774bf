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

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

MAX_DEPTH = 100

RECORDS: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
"""How to read the fields of an engine's own record types, filled by the engine that has them."""


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
    for kinds, convert in _SHAPES:
        if isinstance(value, kinds):
            return convert(value, where, depth)
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


def _finite(value: float, where: str, depth: int) -> JSON:
    if not math.isfinite(value):
        raise NotPlain(f"{where} is {value!r}, which JSON cannot hold")
    return float(value)


def _object(value: Mapping[Any, Any], where: str, depth: int) -> JSON:
    return {
        _key(key, where): plain(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()
    }


def _array(value: Any, where: str, depth: int) -> JSON:
    return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]


# The first row that fits decides: bool before int, datetime among the dates, Enum before its mixin.
_SHAPES: tuple[tuple[Any, Callable[[Any, str, int], JSON]], ...] = (
    ((types.NoneType, bool), lambda value, where, depth: value),
    (enum.Enum, lambda value, where, depth: plain(value.value, where, depth + 1)),
    (str, lambda value, where, depth: str.__str__(value)),
    (int, lambda value, where, depth: int(value)),
    (float, _finite),
    (Mapping, _object),
    ((list, tuple, set, frozenset, deque, range, KeysView, ValuesView, ItemsView), _array),
    ((dt.date, dt.time), lambda value, where, depth: value.isoformat()),
    ((decimal.Decimal, uuid.UUID, pathlib.PurePath), lambda value, where, depth: str(value)),
)


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
