"""GBNF for the numbers between two bounds, written digit by digit. Knows nothing of schemas.

Functions return None instead of an expression if no number is between the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from emulator.answering.grammar.notation import either, literal

DIGITS = 15
"""The most digits of a number without a bound: what a double represents exactly."""
_BOUND_PLACES = 9
"""Bounds are rounded inwards to this many decimal places."""
_EXTRA_PLACES = 4
"""A number may have this many decimal places more than its bounds."""
_MAX_MULTIPLES = 300
_MAX_DIVISOR = 60


def whole(low: int | None, high: int | None) -> str | None:
    """Return the expression for the integers from `low` to `high`, both included. None means no bound."""
    parts: list[str] = []
    if low is None or low < 0:
        largest = None if low is None else -low
        if (negative := _unsigned(1 if high is None else max(1, -high), largest)) is not None:
            parts.append(f'"-" {negative}')
    if (high is None or high >= 0) and (plain := _unsigned(max(0, low or 0), high)) is not None:
        parts.append(plain)
    return either(parts) if parts else None


def multiples(of: int, low: int | None, high: int | None) -> str | None:
    """Return the expression for the multiples of `of` between the bounds.

    If there are too many to list, only those nearest to zero are included.
    """
    least = None if low is None else -(-low // of)
    most = None if high is None else high // of
    if of == 1:
        return whole(least, most)
    if of <= _MAX_DIVISOR and most is None and (least is None or least <= 0):
        sign = '"-"? ' if least is None else ""
        return f"{sign}{_unsigned_multiples(of)}"
    low_end = -_MAX_MULTIPLES if least is None else least
    high_end = _MAX_MULTIPLES if most is None else most
    if low_end > high_end:
        low_end, high_end = (least, least + 1) if least is not None else (high_end - 1, high_end)
    nearest = min(max(0, low_end), high_end)
    start = max(low_end, nearest - _MAX_MULTIPLES // 2)
    found = range(start, min(high_end, start + _MAX_MULTIPLES) + 1)
    return either(literal(str(n * of)) for n in found) if found else None


def _unsigned_multiples(of: int) -> str:
    """Return the expression for 0 and the positive multiples of `of`.

    If `of` divides 10 or 100, the last digits decide whether a number is a multiple; else the multiples are
    listed.
    """
    for length in (1, 2):
        if 10**length % of == 0:
            ends = [f"{n:0{length}d}" for n in range(0, 10**length, of)]
            short = [str(n) for n in range(0, 10 ** (length - 1), of)] if length > 1 else ["0"]
            longer = f"[1-9] [0-9]{{0,{DIGITS - length - 1}}} {either(map(literal, ends))}"
            alone = [end for end in ends if not end.startswith("0")]
            return either([*map(literal, dict.fromkeys([*short, *alone])), longer])
    return either(literal(str(n * of)) for n in range(_MAX_MULTIPLES))


def decimals(
    low: Decimal | None,
    high: Decimal | None,
    *,
    above_low: bool = False,
    below_high: bool = False,
    places: int | None = None,
) -> str | None:
    """Return the expression for the numbers between the bounds, with or without decimal places.

    `above_low` and `below_high` exclude the bounds themselves; `places` limits the decimal places.
    """
    if low is not None and (rounded := _round_bound(low, ROUND_CEILING)) != low:
        low, above_low = rounded, False
    if high is not None and (rounded := _round_bound(high, ROUND_FLOOR)) != high:
        high, below_high = rounded, False
    first = None if low is None else math.ceil(low) + (above_low and low == int(low))
    last = None if high is None else math.floor(high) - (below_high and high == int(high))
    parts = [whole(first, last)] if first is None or last is None or first <= last else []
    zero = Decimal(0)
    if high is None or high >= 0:
        start, is_open = (low, above_low) if low is not None and low >= 0 else (zero, False)
        parts += _fractions(start, high, is_open, below_high, places)
    if low is None or low < 0:
        end = None if low is None else -low
        start, is_open = (-high, below_high) if high is not None and high <= 0 else (zero, False)
        parts += [f'"-" {part}' for part in _fractions(start, end, is_open, above_low, places)]
    found = [part for part in parts if part is not None]
    return either(found) if found else None


def _round_bound(bound: Decimal, rounding: str) -> Decimal:
    if abs(bound) >= 10**DIGITS:
        return bound.to_integral_value(rounding)
    return bound.quantize(Decimal(1).scaleb(-_BOUND_PLACES), rounding).normalize()


def _unsigned(low: int, high: int | None) -> str | None:
    """Return the expression for the integers from `low` to `high`, without leading zeros; 0 <= `low`."""
    if high is not None and low > high:
        return None
    length = len(str(low))
    parts: list[str] = []
    while high is None or length <= len(str(high)):
        start = max(low, 10 ** (length - 1) if length > 1 else 0)
        end = 10**length - 1
        if high is None and start == (10 ** (length - 1) if length > 1 else 0):
            if length == 1:
                parts.append('"0"')
            parts.append(f"[1-9] [0-9]{{{length - 1},{max(length, DIGITS) - 1}}}")
            break
        parts.append(_same_length(str(start), str(end if high is None else min(high, end))))
        length += 1
    return either(parts)


def _same_length(low: str, high: str) -> str:
    """Return the expression for the digits from `low` to `high`, which are equally long."""
    if low == high:
        return literal(low) if low else ""
    if low[0] == high[0]:
        same = next(n for n in range(len(low)) if low[n] != high[n])
        return f"{literal(low[:same])} {_same_length(low[same:], high[same:])}"
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    parts: list[str] = []
    if rest and set(low[1:]) != {"0"}:
        parts.append(f"{literal(low[0])} {_same_length(low[1:], '9' * rest)}")
        first += 1
    at_end = rest and set(high[1:]) != {"9"}
    if first <= last - bool(at_end):
        parts.append(f"{_digit(first, last - bool(at_end))}{_any_digits(rest, rest)}")
    if at_end:
        parts.append(f"{literal(high[0])} {_same_length('0' * rest, high[1:])}")
    return either(parts)


def _digit(first: int, last: int) -> str:
    return literal(str(first)) if first == last else f"[{first}-{last}]"


def _any_digits(least: int, most: int) -> str:
    if most <= 0:
        return ""
    return f" [0-9]{{{least}}}" if least == most else f" [0-9]{{{least},{most}}}"


def _fractions(
    low: Decimal, high: Decimal | None, above: bool, below: bool, places: int | None
) -> Iterator[str]:
    """Yield expressions for the numbers with a decimal point between the bounds; 0 <= `low`."""
    if high is not None and low > high:
        return
    ends, starts = _split_at_point(high) if high is not None else None, _split_at_point(low)
    known = max(len(starts[1]), len(ends[1]) if ends else 0)
    most = places if places is not None else known + _EXTRA_PLACES
    if most < 1 or known > most:
        return
    if high is None and low == 0 and not above:
        yield f'("0" | [1-9] [0-9]{{0,{DIGITS - 1}}}) "."{_any_digits(1, places or DIGITS - 1)}'
        return
    if ends and starts[0] == ends[0]:
        if (inside := _between(starts[1], ends[1], above, below, most)) is not None:
            yield f'"{starts[0]}." {inside}'
        return
    if (rest := _above(starts[1], above, most)) is not None:
        yield f'"{starts[0]}." {rest}'
    between = _unsigned(starts[0] + 1, ends[0] - 1 if ends else None)
    if between is not None:
        yield f'{between} "."{_any_digits(1, most)}'
    if ends and (rest := _below(ends[1], below, most)) is not None:
        yield f'"{ends[0]}." {rest}'


def _split_at_point(bound: Decimal) -> tuple[int, str]:
    """Return the integer part, and the decimal places without trailing zeros."""
    integer = int(bound)
    places = f"{bound - integer:f}".partition(".")[2].rstrip("0")
    return integer, places


def _above(bound: str, is_open: bool, most: int) -> str | None:
    """Return the expression for one to `most` decimal places that are at least `bound`."""
    if most < 1:
        return None
    if not bound:
        if not is_open:
            return _any_digits(1, most).strip()
        zeros = (f"{literal('0' * n)} " if n else "" for n in range(most))
        return either(f"{zero}[1-9]{_any_digits(0, most - n - 1)}" for n, zero in enumerate(zeros))
    first, rest = int(bound[0]), bound[1:]
    parts = [f"{_digit(first + 1, 9)}{_any_digits(0, most - 1)}"] if first < 9 else []
    if rest or is_open:
        if (tail := _above(rest, is_open, most - 1)) is not None:
            parts.append(f"{literal(bound[0])} {tail}")
    else:
        parts.append(f"{literal(bound[0])}{_any_digits(0, most - 1)}")
    return either(parts) if parts else None


def _below(bound: str, is_open: bool, most: int) -> str | None:
    """Return the expression for one to `most` decimal places that are at most `bound`."""
    if most < 1:
        return None
    if not bound:
        return None if is_open else '"0"'
    first, rest = int(bound[0]), bound[1:]
    parts = [f"{_digit(0, first - 1)}{_any_digits(0, most - 1)}"] if first else []
    if rest:
        tail = _below(rest, is_open, most - 1)
        parts.append(f"{literal(bound[0])}" + (f" ({tail})?" if tail else ""))
    elif not is_open:
        parts.append(literal(bound[0]))
    return either(parts) if parts else None


def _between(low: str, high: str, above: bool, below: bool, most: int) -> str | None:
    """Return the expression for one to `most` decimal places from `low` to `high`."""
    length = max(len(low), len(high))
    if most < 1 or not length:
        return '"0"' if most >= 1 and not (above or below) else None
    low, high = low.ljust(length, "0"), high.ljust(length, "0")
    first, last = int(low[0]), int(high[0])
    parts: list[str] = []
    if first == last:
        if length == 1:
            return None if above or below else literal(low)
        tail = _between(low[1:].rstrip("0"), high[1:].rstrip("0"), above, below, most - 1)
        return f"{literal(low[0])} {tail}" if tail else None
    rest = low[1:].rstrip("0")
    if rest or above:
        if (tail := _above(rest, above, most - 1)) is not None:
            parts.append(f"{literal(low[0])} {tail}")
    else:
        parts.append(f"{literal(low[0])}{_any_digits(0, most - 1)}")
    if first + 1 <= last - 1:
        parts.append(f"{_digit(first + 1, last - 1)}{_any_digits(0, most - 1)}")
    rest = high[1:].rstrip("0")
    if rest:
        tail = _below(rest, below, most - 1)
        parts.append(literal(high[0]) + (f" ({tail})?" if tail else ""))
    elif not below:
        parts.append(literal(high[0]))
    return either(parts) if parts else None
