"""What stands around a request: the other turns of its program, and the prompt that its own goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.traces.row import Row

_MOST_STEPS = 200
_MOST_BEFORE = 50
"""Requests that are looked through for the one whose prompt this one goes on with."""


@dataclass(frozen=True)
class Neighbours:
    steps: tuple[str, ...]
    """Ids of the requests in which one program was run, in order; this one is among them."""
    goes_on: str = ""
    """Id of the request whose last prompt the first one of this goes on with; "" if there is none."""


def neighbours(own: Row, first: Sequence[int], rows: Sequence[Row]) -> Neighbours:
    """``rows`` are those of the same client, the newest first; ``first`` checksums of the first prompt."""
    others = [row for row in rows if row.client == own.client and row.id != own.id]
    return Neighbours(_steps(own, others), _goes_on(own, first, others))


def _steps(own: Row, others: Sequence[Row]) -> tuple[str, ...]:
    made: dict[str, list[Row]] = {}
    taken: dict[str, list[Row]] = {}
    for row in others:
        for call in row.calls:
            made.setdefault(call, []).append(row)
        for call in row.resumed:
            taken.setdefault(call, []).append(row)
    before: list[Row] = []
    after: list[Row] = []
    at = own
    while len(before) < _MOST_STEPS and (
        found := [r for call in at.resumed for r in made.get(call, ()) if r.began < at.began]
    ):
        before.append(at := max(found, key=lambda row: row.began))
    at = own
    while len(after) < _MOST_STEPS and (
        found := [r for call in at.calls for r in taken.get(call, ()) if r.began > at.began]
    ):
        after.append(at := min(found, key=lambda row: row.began))
    return tuple(row.id for row in [*reversed(before), own, *after])


def _goes_on(own: Row, first: Sequence[int], others: Sequence[Row]) -> str:
    best, most = "", 0
    earlier = (row for row in others if row.began < own.began)
    for row, _ in zip(earlier, range(_MOST_BEFORE), strict=False):
        shared = _shared(row.prompt, first) if row.model == own.model else 0
        if shared > most:
            best, most = row.id, shared
    return best


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many messages both begin with."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
