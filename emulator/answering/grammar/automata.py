"""Grammar rules for the texts that contain none of some expressions. GBNF itself has no "not".

The expressions become an automaton (Thompson 1968, the subset construction of Rabin and Scott 1959). Each of
its states becomes a rule, which reads one character and continues with another rule. All characters beyond
ASCII count as one character, except those of `SIGNS`. Knows nothing of what is forbidden.

An expression is a string, a `One`, a `Many`, an `Either`, or a tuple or list of expressions in sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

SIGNS = "｜“”"
"""The characters beyond ASCII that expressions may contain."""
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
    """Return the expression for one of ``characters``."""
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
    """A nondeterministic automaton. State 0 accepts: a whole expression was read."""

    def __init__(self) -> None:
        self.edges: list[dict[int, set[int]]] = [{}]
        """For each state: a set of characters -> the states after one of them."""
        self.free: list[set[int]] = [set()]
        """For each state: the states that it reaches without reading a character."""
        self._closed: dict[int, frozenset[int]] = {}

    def before(self, part: object, then: int) -> int:
        """Return a state that reads ``part`` and leads to the state ``then``."""
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
        """Return ``state`` and all states that it reaches without reading a character."""
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
        """Return a state that reads one of ``texts``; texts with the same beginning share its states."""
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
    """Return the rules for texts of ``allowed`` characters that contain none of ``expressions``.

    The rule ``name`` is the first. A text counts as preceded by a line end, so an expression that may only
    match at the start of a line begins with ``\\n``.
    """
    table = _merge_equal_rows(_make_table(expressions, allowed.mask))
    counts = Counter(transition for row in table for transition in row.transitions.items())
    # Most states have these transitions; a rule of their own keeps the grammar short.
    common = dict(transition for transition, count in counts.items() if count > len(table) / 2)
    rules = {_rule(name, number): _body(name, row, common) for number, row in enumerate(table)}
    if common:
        rules[f"{name}-sign"] = _alternatives(name, common)
    return rules


@dataclass(frozen=True)
class _Row:
    """A state of the deterministic automaton."""

    transitions: Mapping[int, int]
    """The next state -> the characters that lead to it."""
    may_end: bool
    """Whether a text may end in this state."""


def _make_table(expressions: Iterable[object], allowed: int) -> list[_Row]:
    states = _States()
    anywhere = states.closed(states.before(either(expressions), 0))
    begin = _read(states, anywhere, _BITS["\n"]) | anywhere
    numbers, waiting = {begin: 0}, [begin]
    table: list[_Row] = []
    for state in waiting:
        transitions: dict[int, int] = {}
        for mask, reached in _classes(states, state):
            if 0 in reached or not mask & allowed:
                continue
            following = reached | anywhere
            if following not in numbers:
                numbers[following] = len(numbers)
                waiting.append(following)
            number = numbers[following]
            transitions[number] = transitions.get(number, 0) | mask & allowed
        table.append(_Row(transitions, may_end=0 not in _read(states, state, _END)))
    return table


def _merge_equal_rows(table: list[_Row]) -> list[_Row]:
    """Merge the states that accept the same texts (Moore 1956)."""
    kinds = [int(row.may_end) for row in table]
    while True:
        seen: dict[object, int] = {}
        finer = []
        for row, kind in zip(table, kinds, strict=True):
            transitions: dict[int, int] = {}
            for number, mask in row.transitions.items():
                transitions[kinds[number]] = transitions.get(kinds[number], 0) | mask
            finer.append(seen.setdefault((kind, frozenset(transitions.items())), len(seen)))
        if len(seen) == len(set(kinds)):
            break
        kinds = finer
    merged: dict[int, _Row] = {}
    for row, kind in zip(table, finer, strict=True):
        transitions = {}
        for number, mask in row.transitions.items():
            transitions[finer[number]] = transitions.get(finer[number], 0) | mask
        merged.setdefault(kind, _Row(transitions, row.may_end))
    return [merged[kind] for kind in range(len(merged))]


def _body(name: str, row: _Row, common: Mapping[int, int]) -> str:
    """Return a state's rule. The transitions in ``common`` have a rule of their own."""
    own = dict(row.transitions)
    shared = []
    if common and common.items() <= own.items():
        own = {number: mask for number, mask in own.items() if number not in common}
        shared = [f"{name}-sign"]
    choices = " | ".join([*shared, *([_alternatives(name, own)] if own else [])])
    return f"({choices}){'?' if row.may_end else ''}"


def _alternatives(name: str, transitions: Mapping[int, int]) -> str:
    return " | ".join(
        f"{_character_set(mask)} {_rule(name, number)}" for number, mask in transitions.items()
    )


def _rule(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _read(states: _States, state: frozenset[int], bit: int) -> frozenset[int]:
    """Return the states after one character, the one with ``bit``."""
    found: set[int] = set()
    for one in state:
        for mask, targets in states.edges[one].items():
            if mask & bit:
                found.update(*map(states.closed, targets))
    return frozenset(found)


def _classes(states: _States, state: frozenset[int]) -> Iterator[tuple[int, frozenset[int]]]:
    """Partition the characters into sets that lead to the same states; yield each set and its states."""
    classes: dict[int, frozenset[int]] = {_ALL: frozenset()}
    for one in state:
        for mask, targets in states.edges[one].items():
            more = frozenset().union(*map(states.closed, targets))
            split: dict[int, frozenset[int]] = {}
            for known, found in classes.items():
                if inside := known & mask:
                    split[inside] = found | more
                if outside := known & ~mask:
                    split[outside] = found
            classes = split
    yield from classes.items()


def _character_set(mask: int) -> str:
    """Return a character set in GBNF. A set that contains characters beyond ASCII is a complement."""
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
        "".join(map(_escape, run)) if len(run) < 4 else f"{_escape(run[0])}-{_escape(run[-1])}"
        for run in runs
    )
    return f"[{'^' if others else ''}{inside}]"


def _escape(character: str) -> str:
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    if character in '\\]["^-' or ord(character) < 0x20:
        return f"\\x{ord(character):02x}"
    return character
