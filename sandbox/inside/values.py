"""Turn values of a program or a cell into JSON. Knows nothing of sandboxes or schemas."""

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
"""The MIME type under which a kernel displays the value of a cell as JSON, in addition to those for
people."""
AWAITED = "_awaited_"
"""The name of the function, in a kernel, that makes any value awaitable."""

REFUSED = "!"
"""The first character of a reply to a kernel that refuses a call; the reason follows. No JSON begins with
it."""

FAILED = "\x00failed"
"""The only key of an object that a host sends instead of a result, for a call that failed; its value is the
text of the failure. The call raises `ToolError`."""


class ToolError(RuntimeError):
    """A call of an offered function failed; the message is what the client sent as its result.

    A call of a cell raises it. A call of a program raises it where the program has a handler for it; without
    one it returns the failure, which the program may look at.
    """


def received(result: Any) -> Any:
    """`result`, or a `ToolError` to raise if the host reports that the call failed."""
    if isinstance(result, dict) and result.keys() == {FAILED}:
        return ToolError(str(result[FAILED]))
    return result


ARRAYS = (list, tuple, set, frozenset, deque, range, KeysView, ValuesView, ItemsView)

# bool before int, since a bool is an int; the str or int of an Enum mixin is its value already.
_LEAVES: tuple[tuple[Any, Callable[[Any], JSON]], ...] = (
    ((types.NoneType, bool), lambda value: value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    ((decimal.Decimal, uuid.UUID, pathlib.PurePath), str),
)


def plain(value: Any, where: str = "value", depth: int = 0) -> JSON:
    """Return `value` as JSON data.

    Dataclass, pydantic and namespace objects and instances of the program's own classes -> dict;
    Enum -> its value; date, datetime, time -> isoformat; tuple, set, range, dict views -> list;
    Decimal, UUID, Path -> str; numpy scalars and arrays -> their `tolist()`.
    Raises TypeError, which names the value's type and place, for everything else (bytes, functions, nan, ...)
    and for nesting deeper than MAX_DEPTH.
    """
    if depth > MAX_DEPTH:
        raise TypeError(f"{where} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{where} is {value!r}, which JSON cannot hold")
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
    if isinstance(value, ARRAYS):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    fields = fields_of(value)
    if fields is not None:
        return {
            name: plain(item, f"{where}.{name}", depth + 1)
            for name, item in fields.items()
            if not name.startswith("_")
        }
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), where, depth + 1)
    raise TypeError(f"{where} is of type {type(value).__name__}, which JSON cannot hold")


def _key(key: Any, where: str) -> str:
    """A dict key as json.dumps writes it."""
    value = plain(key, f"a key of {where}")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"{where} has a key of type {type(key).__name__}; JSON keys are strings")


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of a record-like object, or None for another object."""
    kind = type(value)
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
