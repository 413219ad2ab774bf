"""GBNF for the strings and numbers that a schema allows. Knows nothing of arrays and objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from math import ceil, floor
from typing import Any

from emulator.answering.grammar import numbers, strings
from emulator.answering.grammar.notation import python
from emulator.answering.grammar.rules import NoValue

LENGTHS = ("minLength", "maxLength", "pattern")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def string(view: Mapping[str, Any]) -> str:
    """Return the expression for a string with limits on its length, or with a pattern. Raises `NoValue`.

    The grammar must contain the rule ``character``.
    """
    least, most = view.get("minLength", 0), view.get("maxLength")
    # 3.0 is an integer in JSON.
    expression = strings.text(int(least), None if most is None else int(most), view.get("pattern"))
    if expression is None:
        raise NoValue
    return expression


def number(kind: str, view: Mapping[str, Any]) -> str:
    """Return the expression for an ``integer`` or ``number`` (`kind`) between bounds. Raises `NoValue`."""
    low, above = _bound(view, "minimum", "exclusiveMinimum", max)
    high, below = _bound(view, "maximum", "exclusiveMaximum", min)
    of = Decimal(repr(view["multipleOf"])) if "multipleOf" in view else None
    least = None if low is None else floor(low) + 1 if above else ceil(low)
    most = None if high is None else ceil(high) - 1 if below else floor(high)
    if kind == "number" and (of is None or Decimal(1).scaleb(of.adjusted()) == of < 1):
        places = None if of is None else -of.adjusted()
        expression = numbers.decimals(low, high, above_low=above, below_high=below, places=places)
    elif of is None:
        expression = numbers.whole(least, most)
    else:
        # The smallest integer that is a multiple of `of`: 5 for 2.5.
        expression = numbers.multiples(of.as_integer_ratio()[0], least, most)
    if expression is None:
        raise NoValue
    return expression


def _bound(
    view: Mapping[str, Any], keyword: str, exclusive: str, narrower: Callable[..., Decimal]
) -> tuple[Decimal | None, bool]:
    """Return the narrower of two bounds, and whether the bound itself is excluded."""
    found = [
        (Decimal(repr(view[name])), name == exclusive)
        for name in (exclusive, keyword)
        if isinstance(view.get(name), int | float) and not isinstance(view[name], bool)
    ]
    if not found:
        return None, False
    bound = narrower(value for value, _ in found)
    return bound, any(is_excluded for value, is_excluded in found if value == bound)


def is_text(value: Any) -> bool:
    """Return True if `value` can be encoded; half of a surrogate pair cannot."""
    try:
        python(value).encode()
    except UnicodeEncodeError:
        return False
    return True
