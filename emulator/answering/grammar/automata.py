"""Texts in which no forbidden expression stands, as grammar rules: what GBNF, which cannot say "not", lacks.

The expressions become an automaton (Thompson 1968, the subset construction of Rabin and Scott 1959), whose
states are rules: each reads a character and continues with another rule. All characters beyond ASCII
count as one, except those of `SIGNS`. Knows nothing of what is forbidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

SIGNS = "｜“”"
"""Characters beyond ASCII that expressions name."""
_CHARACTERS = "\t\n\x0b\x0c\r" + "".join(map(chr, range(0x20, 0x7F))) + SIGNS
_OTHER = 1 << len(_CHARACTERS)
_END = _OTHER << 1
_ALL = (_OTHER << 1) - 1
_BITS = {character: 1 << n for n, character in enumerate(_CHARACTERS)}


@dataclass(frozen=True)
class One:
    """One character of a set, or the end of the text."""

    mask: int

    def __invert__(self) -> One:
        return One(_ALL & ~self.mask)


def one_of(characters: Iterable[str]) -> One:
    """A character of these."""
    return One(sum({_BITS[character] for character in characters}))


END = One(_END)


@dataclass(frozen=True)
class Many:
    """Any number of repetitions, including none."""

    part: object


@dataclass(frozen=True)
class Either:
    parts: tuple[object, ...]


def either(parts: Iterable[object]) -> Either:
    return Either(tuple(parts))


def maybe(part: object) -> Either:
    return Either((part, ()))


class _States:
    """What an expression reads, a state at a time; state 0 has read all of one."""

    def __init__(self) -> None:
        self.edges: list[dict[int, set[int]]] = [{}]
        """By state: the states behind a character of a set."""
        self.free: list[set[int]] = [set()]
        """By state: those that are reached without any."""
        self._closed: dict[int, frozenset[int]] = {}

    def before(self, part: object, then: int) -> int:
        """The state that reads ``part`` and then is in ``then``."""
        match part:
            case str():
                for character in reversed(part):
                    then = self._new({_BITS[character]: {then}})
                return then
            case One(mask=mask):
                return self._new({mask: {then}})
            case Many(part=inner):
                again = self._new({})
                self.free[again] |= {self.before(inner, again), then}
                return again
            case Either(parts=parts):
                texts = {one for one in parts if isinstance(one, str)}
                state = self._trie(texts, then) if texts else self._new({})
                self.free[state] |= {
                    self.before(one, then) for one in parts if not isinstance(one, str)
                }
                return state
            case tuple() | list():
                for one in reversed(part):
                    then = self.before(one, then)
                return then
        raise TypeError(part)

    def closed(self, state: int) -> frozenset[int]:
        """It and the states that are reached without a character."""
        if state not in self._closed:
            found, waiting = {state}, [state]
            while waiting:
                more = self.free[waiting.pop()] - found
                found |= more
                waiting += more
            self._closed[state] = frozenset(one for one in found if self.edges[one] or not one)
        return self._closed[state]

    def _new(self, edges: dict[int, set[int]]) -> int:
        self.edges.append(edges)
        self.free.append(set())
        return len(self.edges) - 1

    def _trie(self, texts: Collection[str], then: int) -> int:
        """As one state for each beginning of the texts."""
        state = self._new({})
        if "" in texts:
            self.free[state].add(then)
        for first in sorted({text[0] for text in texts if text}):
            rest = {text[1:] for text in texts if text.startswith(first)}
            self.edges[state][_BITS[first]] = {self._trie(rest, then)}
        return state


def without(
    name: str, expressions: Iterable[object], *, allowed: One = One(_ALL)
) -> Mapping[str, str]:
    """The rules of which ``name`` is the first: texts of ``allowed`` characters without any of these.

    A text is read as if a line's end came before it: an expression for what begins a line begins with one.
    """
    table = _merged(_table(expressions, allowed.mask))
    often = Counter(way for row in table for way in row.ways.items())
    signs = dict(way for way, times in often.items() if times > len(table) / 2)
    rules = {_rule(name, number): _body(name, row, signs) for number, row in enumerate(table)}
    if signs:
        rules[f"{name}-sign"] = _ways(name, signs)
    return rules


@dataclass(frozen=True)
class _Row:
    """What a state reads, and whether a text may end in it."""

    ways: Mapping[int, int]
    """The characters that lead to each of the states behind."""
    ends: bool


def _table(expressions: Iterable[object], allowed: int) -> list[_Row]:
    states = _States()
    anywhere = states.closed(states.before(either(expressions), 0))
    begin = _read(states, anywhere, _BITS["\n"]) | anywhere
    numbers, waiting = {begin: 0}, [begin]
    table: list[_Row] = []
    for state in waiting:
        ways: dict[int, int] = {}
        for mask, behind in _classes(states, state):
            if 0 in behind or not mask & allowed:
                continue
            following = behind | anywhere
            if following not in numbers:
                numbers[following] = len(numbers)
                waiting.append(following)
            number = numbers[following]
            ways[number] = ways.get(number, 0) | mask & allowed
        table.append(_Row(ways, ends=0 not in _read(states, state, _END)))
    return table


def _merged(table: list[_Row]) -> list[_Row]:
    """Without states that differ in nothing (Moore 1956)."""
    kinds = [int(row.ends) for row in table]
    while True:
        seen: dict[object, int] = {}
        finer = []
        for row, kind in zip(table, kinds, strict=True):
            ways: dict[int, int] = {}
            for behind, mask in row.ways.items():
                ways[kinds[behind]] = ways.get(kinds[behind], 0) | mask
            finer.append(seen.setdefault((kind, frozenset(ways.items())), len(seen)))
        if len(seen) == len(set(kinds)):
            break
        kinds = finer
    merged: dict[int, _Row] = {}
    for row, kind in zip(table, finer, strict=True):
        ways = {}
        for behind, mask in row.ways.items():
            ways[finer[behind]] = ways.get(finer[behind], 0) | mask
        merged.setdefault(kind, _Row(ways, row.ends))
    return [merged[kind] for kind in range(len(merged))]


def _body(name: str, row: _Row, signs: Mapping[int, int]) -> str:
    """``signs`` are the ways that most states have, as a rule."""
    own = dict(row.ways)
    shared = []
    if signs and signs.items() <= own.items():
        own = {behind: mask for behind, mask in own.items() if behind not in signs}
        shared = [f"{name}-sign"]
    written = " | ".join([*shared, *([_ways(name, own)] if own else [])])
    return f"({written}){'?' if row.ends else ''}"


def _ways(name: str, ways: Mapping[int, int]) -> str:
    return " | ".join(f"{_set(mask)} {_rule(name, behind)}" for behind, mask in ways.items())


def _rule(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _read(states: _States, state: frozenset[int], bit: int) -> frozenset[int]:
    """The states behind one character."""
    found: set[int] = set()
    for one in state:
        for mask, behind in states.edges[one].items():
            if mask & bit:
                found.update(*map(states.closed, behind))
    return frozenset(found)


def _classes(states: _States, state: frozenset[int]) -> Iterator[tuple[int, frozenset[int]]]:
    """Sets of characters, and the states behind each."""
    classes: dict[int, frozenset[int]] = {_ALL: frozenset()}
    for one in state:
        for mask, behind in states.edges[one].items():
            more = frozenset().union(*map(states.closed, behind))
            parted: dict[int, frozenset[int]] = {}
            for known, found in classes.items():
                if inside := known & mask:
                    parted[inside] = found | more
                if outside := known & ~mask:
                    parted[outside] = found
            classes = parted
    yield from classes.items()


def _set(mask: int) -> str:
    """A character set in GBNF; one with characters beyond ASCII is written as a complement."""
    others = bool(mask & _OTHER)
    characters = [c for c, bit in _BITS.items() if bool(mask & bit) is not others]
    if others and not characters:
        return "[^\\x00]"
    runs: list[list[str]] = []
    for character in characters:
        if runs and ord(character) == ord(runs[-1][-1]) + 1:
            runs[-1].append(character)
        else:
            runs.append([character])
    inside = "".join(
        "".join(map(_escaped, run)) if len(run) < 4 else f"{_escaped(run[0])}-{_escaped(run[-1])}"
        for run in runs
    )
    return f"[{'^' if others else ''}{inside}]"


def _escaped(character: str) -> str:
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    if character in '\\]["^-' or ord(character) < 0x20:
        return f"\\x{ord(character):02x}"
    return character
