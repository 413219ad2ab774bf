"""Requests that belong to one: the other turns of its program, and its neighbours in the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from emulator.traces.summary import TraceSummary

_MAX_STEPS = 200
_MAX_EARLIER = 50
"""Earlier requests whose prompts are compared."""


@dataclass(frozen=True)
class RelatedRequests:
    steps: tuple[str, ...]
    """Ids of the requests in which the same program ran, in order; includes the request itself."""
    compared: str = ""
    """Id of the request whose last prompt begins most like this one's first; "" if there is none."""
    earlier: str = ""
    """Id of the last request whose whole prompt is the beginning of this one's; "" if there is none."""
    later: str = ""
    """Id of the first request whose prompt begins with the whole of this one's; "" if there is none."""


def find_related(
    own: TraceSummary, first_prompt: Sequence[int], rows: Sequence[TraceSummary]
) -> RelatedRequests:
    """``rows`` are the same client's requests, newest first; ``first_prompt`` is made by `checksums`."""
    others = [row for row in rows if row.client == own.client and row.id != own.id]
    return RelatedRequests(
        _steps(own, others),
        _compared(own, first_prompt, others),
        earlier=next((row.id for row in others if _is_continued(row, by=own)), ""),
        later=next((row.id for row in reversed(others) if _is_continued(own, by=row)), ""),
    )


def _steps(own: TraceSummary, others: Sequence[TraceSummary]) -> tuple[str, ...]:
    sent: dict[str, list[TraceSummary]] = {}
    resumed: dict[str, list[TraceSummary]] = {}
    for row in others:
        for call in row.calls:
            sent.setdefault(call, []).append(row)
        for call in row.resumed:
            resumed.setdefault(call, []).append(row)
    before: list[TraceSummary] = []
    after: list[TraceSummary] = []
    step = own
    while len(before) < _MAX_STEPS and (
        found := [r for call in step.resumed for r in sent.get(call, ()) if r.began < step.began]
    ):
        before.append(step := max(found, key=lambda row: row.began))
    step = own
    while len(after) < _MAX_STEPS and (
        found := [r for call in step.calls for r in resumed.get(call, ()) if r.began > step.began]
    ):
        after.append(step := min(found, key=lambda row: row.began))
    return tuple(row.id for row in [*reversed(before), own, *after])


def _compared(
    own: TraceSummary, first_prompt: Sequence[int], others: Sequence[TraceSummary]
) -> str:
    best, most = "", 0
    earlier = (row for row in others if row.began < own.began)
    for row in islice(earlier, _MAX_EARLIER):
        shared = _shared(row.prompt, first_prompt) if row.model == own.model else 0
        if shared > most:
            best, most = row.id, shared
    return best


def _is_continued(row: TraceSummary, by: TraceSummary) -> bool:
    return (
        row.began < by.began
        and row.model == by.model
        and 0 < len(row.prompt) < len(by.prompt)
        and by.prompt[: len(row.prompt)] == row.prompt
    )


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of messages with which both begin."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
