"""Recognize errors that come from a missing feature of Monty, not from the program.

Read from the source of pydantic-monty 1.4.0; tests/sandbox/test_engines.py has a case of each kind.
"""

import builtins
import datetime as dt
import decimal
import re
from typing import Any

BUILTINS = frozenset(dir(builtins))

# Monty returns an object that has no type on the host as its repr, a str. The program's own text may look
# the same, so
# it is not refused: another engine, which keeps types, runs the program.
OPAQUE = re.compile(
    r"(?:range|dict_keys|dict_values|dict_items|slice|functools\.partial)\(.*\)\Z"
    r"|<(?:function|module|class|bound method|coroutine object|[\w.]+ object)\b.*>\Z"
    r"|\[\.\.\.\]\Z|\{\.\.\.\}\Z",
    re.DOTALL,
)

# Messages of errors that come from a missing feature.
_MISSING_FEATURE = re.compile(
    r"The monty syntax parser does not yet support"
    r"|cannot suspend in this synchronous context"
    r"|Internal error in monty"
    r"|is not supported in this environment"
    r"|'float' object cannot be interpreted as an integer"  # parts of a timedelta
    r"|Python int too large to convert"
    r"|(?:invalid literal for int|could not convert string to float).*[^\x00-\x7f]"
)
_NO_ATTRIBUTE = re.compile(r"(?:type object )?'([\w.]+)'(?: object)? has no attribute '(\w+)'")
_NO_INSTANCE = re.compile(r"cannot create '([\w.]+)' instances")
_KNOWN_TYPES: dict[str, type] = {
    **{name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)},
    **{f"datetime.{kind.__name__}": kind for kind in (dt.date, dt.datetime, dt.time, dt.timedelta)},
    "decimal.Decimal": decimal.Decimal,
    "Decimal": decimal.Decimal,
}


def is_gap(error: BaseException, message: str) -> bool:
    """Return True if an uncaught error comes from a missing feature of Monty."""
    if isinstance(error, ImportError) or _MISSING_FEATURE.search(message):
        return True
    if isinstance(error, AttributeError):
        missing = _NO_ATTRIBUTE.match(message)
        kind = _KNOWN_TYPES.get(missing[1]) if missing else None
        known = missing is not None and kind is not None and hasattr(kind, missing[2])
        return known or message.startswith("module '")
    created = _NO_INSTANCE.match(message)
    return created is not None and created[1] in _KNOWN_TYPES


def holds_opaque(value: Any, depth: int = 0) -> bool:
    """Return True if some text in `value` may be the repr of an object that Monty cannot return."""
    if isinstance(value, str):
        return bool(OPAQUE.match(value))
    if depth > 20:
        return False
    if isinstance(value, dict):
        return any(holds_opaque(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_opaque(item, depth + 1) for item in value)
    return False
