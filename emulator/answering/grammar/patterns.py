"""Translate a regular expression into GBNF for the texts that it matches, written as Python literals.

Look-around, back-references, word boundaries and flags have no translation. Where regular expression engines
differ, only texts that match in all of them are admitted. Knows nothing of schemas.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from emulator.answering.grammar.notation import LONGEST, counted, either, literal

_END = 0x10FFFF
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_CONTROLS = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029), (0xD800, 0xDFFF))

Ranges = tuple[tuple[int, int], ...]


class NoGrammar(ValueError):
    """A pattern that this module cannot translate."""


@dataclass(frozen=True)
class _Piece:
    """A part of a pattern and its repetition. None means no limit."""

    expression: str
    shortest: int = 1
    """The fewest characters of one repetition."""
    longest: int | None = 1
    """The most characters of one repetition."""
    times: tuple[int, int | None] = (1, 1)
    """The fewest and the most repetitions."""

    def __str__(self) -> str:
        return self.expression + counted(*self.times)

    @property
    def least(self) -> int:
        return self.shortest * self.times[0]

    @property
    def most(self) -> int | None:
        often = self.times[1]
        return None if often is None or self.longest is None else self.longest * often


_ANY = _Piece("character", times=(0, None))
_ASCII: Ranges = ((0x20, 0x7E),)
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_BLANK: Ranges = ((0x20, 0x20),)


def _without(ranges: Ranges, universe: Ranges = ((0, _END),)) -> Ranges:
    """Return the part of `universe` that is not in `ranges`."""
    remaining: list[tuple[int, int]] = []
    for start, end in universe:
        at = start
        for low, high in sorted(ranges):
            if high < at or low > end:
                continue
            if low > at:
                remaining.append((at, low - 1))
            at = high + 1
        if at <= end:
            remaining.append((at, end))
    return tuple(remaining)


# Engines disagree about characters beyond ASCII in negated classes; ASCII is enough.
_CLASSES: dict[str, Ranges] = {
    "d": _DIGITS,
    "w": _WORD,
    "s": _BLANK,
    "D": _without(_DIGITS, _ASCII),
    "W": _without(_WORD, _ASCII),
    "S": _without(_BLANK, _ASCII),
}
_BEYOND_ASCII: Ranges = ((0x80, _END),)
_BLANKS: Ranges = tuple(
    (code, code) for code in (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000, 0xFEFF)
)  # fmt: skip
_LETTERS = {"n": "\n", "t": "\t"}


class Pattern:
    """A parsed regular expression. Raises `NoGrammar`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._branches = self._alternatives(outermost=True)
        if self._at < len(pattern):
            raise NoGrammar(pattern)

    def within(self, shortest: int, longest: int | None) -> str:
        """Return the expression for the matches of these lengths. Raises `NoGrammar` if there are none."""
        limited = [
            branch for pieces in self._branches if (branch := _limit(pieces, shortest, longest))
        ]
        if not limited:
            raise NoGrammar(self._pattern)
        return either(" ".join(map(str, pieces)) or '""' for pieces in limited)

    def _alternatives(self, *, outermost: bool = False) -> list[list[_Piece]]:
        branches = [self._sequence(outermost=outermost)]
        while self._skip("|"):
            branches.append(self._sequence(outermost=outermost))
        return branches

    def _sequence(self, *, outermost: bool) -> list[_Piece]:
        pieces: list[_Piece] = []
        if outermost and not self._skip("^"):
            pieces.append(_ANY)
        ended = False
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if ended:
                raise NoGrammar("something follows the end")
            if outermost and self._skip("$"):
                ended = True
            else:
                pieces.append(self._with_quantifier(self._atom()))
        if outermost and not ended:
            pieces.append(_ANY)
        return pieces

    def _atom(self) -> _Piece:
        character = self._take()
        match character:
            case "(":
                if self._skip("?") and not self._skip(":"):
                    raise NoGrammar("a group of a special kind")
                branches = self._alternatives()
                if not self._skip(")"):
                    raise NoGrammar("an open group")
                group = either(" ".join(map(str, pieces)) or '""' for pieces in branches)
                least = min(sum(piece.least for piece in pieces) for pieces in branches)
                mosts = [_sum(piece.most for piece in pieces) for pieces in branches]
                most = None if None in mosts else max(filter(None, mosts), default=0)
                return _Piece(f"({group})", least, most)
            case "[":
                return _one_of(self._class())
            case ".":
                return _one_of(_without((*_CONTROLS,)))
            case "\\":
                return _one_of(self._escape())
            case "^" | "$" | "*" | "+" | "?" | "{" | "}" | "]":
                raise NoGrammar(character)
        return _one_of(((ord(character), ord(character)),))

    def _with_quantifier(self, piece: _Piece) -> _Piece:
        bounds = self._quantifier()
        if bounds is None:
            return piece
        least, most = bounds
        if self._at < len(self._pattern) and self._pattern[self._at] in "*+?{":
            if self._pattern[self._at] != "?":
                raise NoGrammar("a repetition of a repetition")
            self._at += 1  # a lazy quantifier matches the same texts
        return replace(piece, times=(least, most))

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        match = re.compile(r"\{(\d{1,4})(,?)(\d{0,4})\}").match(self._pattern, self._at)
        if match is None:
            return None
        self._at = match.end()
        least = int(match[1])
        most = int(match[3]) if match[3] else None if match[2] else least
        if max(least, most or 0) > LONGEST or (most is not None and most < least):
            raise NoGrammar("a high count")
        return least, most

    def _class(self) -> Ranges:
        negated = self._skip("^")
        members: list[tuple[int, int]] = []
        while not self._skip("]"):
            named = self._pattern[self._at : self._at + 2]
            first = self._member()
            if negated and named[:1] == "\\" and named[1:] in _CLASSES:
                # Exclude every character that any engine excludes.
                members += _BLANKS if named == r"\s" else _BEYOND_ASCII
            if len(first) == 1 and first[0][0] == first[0][1] and self._range_follows():
                self._at += 1
                last = self._member()
                if len(last) != 1 or last[0][0] != last[0][1] or last[0][0] < first[0][0]:
                    raise NoGrammar("an invalid range")
                first = ((first[0][0], last[0][0]),)
            members += first
        # Engines disagree whether a negated class matches line ends; control characters are never needed.
        return _without((*members, *_CONTROLS)) if negated else tuple(members)

    def _range_follows(self) -> bool:
        rest = self._pattern[self._at : self._at + 2]
        return rest[:1] == "-" and rest[1:] not in ("]", "")

    def _member(self) -> Ranges:
        character = self._take()
        if character == "\\":
            return self._escape()
        if character == "[" or self._pattern[self._at - 1 : self._at + 1] in ("&&", "--", "~~"):
            raise NoGrammar("sets of sets")
        return ((ord(character), ord(character)),)

    def _escape(self) -> Ranges:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _LETTERS:
            character = _LETTERS[character]
        elif character not in string.punctuation:
            raise NoGrammar(f"\\{character}")
        return ((ord(character), ord(character)),)

    def _take(self) -> str:
        if self._at >= len(self._pattern):
            raise NoGrammar("an early end")
        self._at += 1
        return self._pattern[self._at - 1]

    def _skip(self, sign: str) -> bool:
        """Read ``sign`` if it comes next. Returns True if it was read."""
        found = self._pattern.startswith(sign, self._at)
        self._at += len(sign) if found else 0
        return found


def _limit(pieces: list[_Piece], shortest: int, longest: int | None) -> list[_Piece] | None:
    """Return the pieces with repetitions that keep a text within these lengths.

    Pieces of variable length share the remaining characters equally. Returns None if limits on single pieces
    cannot keep the lengths.
    """
    most = _sum(piece.most for piece in pieces)
    if longest is not None and (most is None or most > longest):
        remaining = longest - sum(piece.least for piece in pieces)
        elastic = [piece for piece in pieces if piece.most != piece.least]
        if remaining < 0 or any(piece.longest is None for piece in elastic):
            return None
        share = remaining // max(len(elastic), 1)
        if any(piece.times == (1, 1) for piece in elastic):
            return None  # alternatives of different lengths
        pieces = [_shorten(piece, share) if piece in elastic else piece for piece in pieces]
    missing = shortest - sum(piece.least for piece in pieces)
    for n, piece in enumerate(pieces):
        if missing <= 0:
            break
        if piece.shortest:
            low, high = piece.times
            more = -(-missing // piece.shortest)
            more = more if high is None else min(more, high - low)
            pieces = [*pieces[:n], replace(piece, times=(low + more, high)), *pieces[n + 1 :]]
            missing -= more * piece.shortest
    return pieces if missing <= 0 else None


def _shorten(piece: _Piece, share: int) -> _Piece:
    """Limit the piece to `share` characters more than its shortest text."""
    low, high = piece.times
    limit = (piece.least + share) // (piece.longest or 1)
    return replace(piece, times=(low, max(low, limit if high is None else min(high, limit))))


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None (no limit) if any count is None."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _one_of(ranges: Ranges) -> _Piece:
    """Return the piece for one character of ``ranges``, as written in a Python literal.

    Raises `NoGrammar` if no literal contains such a character.
    """
    inside: Callable[[int], bool] = lambda code: any(low <= code <= high for low, high in ranges)  # noqa: E731
    parts = [literal(escape) for sign, escape in _ESCAPED.items() if inside(ord(sign))]
    plain = _without((*_CONTROLS, *((ord(sign),) * 2 for sign in _ESCAPED)), tuple(sorted(ranges)))
    if plain:
        parts.insert(0, f"[{''.join(map(_range, plain))}]")
    if not parts:
        raise NoGrammar("a character that no literal contains")
    return _Piece(either(parts))


def _range(bounds: tuple[int, int]) -> str:
    low, high = map(_escape_in_set, bounds)
    return low if low == high else f"{low}-{high}"


def _escape_in_set(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
