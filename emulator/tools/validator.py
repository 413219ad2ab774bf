"""The authority on values: jsonschema-rs, JSON Schema 2020-12.

*Stops:* regular expressions that never end (they run in linear time), references that leave the
schema, exponential work in recursive unions. *Does not check:* ``format``, which is an annotation
by default in 2020-12 (clients' ``date-time`` often lacks the offset that RFC 3339 requires);
patterns with look-around or back-references, which no linear-time engine can match.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jsonschema_rs

from emulator.tools.schema import Schema, SchemaError, at

_REGEX = jsonschema_rs.RegexOptions(size_limit=1_000_000)


def compile_validator(schema: Schema, param: str = "") -> jsonschema_rs.Validator:
    """Return a validator for a cleaned schema. Raises SchemaError with the place below `param`."""
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, validate_formats=False, offline=True, pattern_options=_REGEX
        )
    except jsonschema_rs.ValidationError as error:
        place = param
        for step in error.instance_path:
            place = at(place, step)
        raise SchemaError(f"not valid JSON Schema: {error.message[:200]}", place) from error
    except ValueError as error:
        raise SchemaError(f"not valid JSON Schema: {str(error)[:200]}", param) from error


def enforceable(pattern: str) -> bool:
    """Return True if `pattern` can be matched in linear time."""
    try:
        matcher(pattern)
    except SchemaError:
        return False
    return True


@lru_cache(maxsize=512)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a search function for an enforceable `pattern`, using the validator's engine."""
    return compile_validator({"pattern": pattern}).is_valid


def same(one: object, other: object) -> bool:
    """JSON equality: 1 equals 1.0, neither equals true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other
