"""The list of requests: filter, search, pages, and the totals of what is found."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.traces.notes import EXPLAINS_NO_CALL
from emulator.traces.summary import TraceSummary

ROWS_PER_PAGE = 50
_MAX_QUERY = 500
_MAX_CHOICES = 50
FILTERS: Mapping[str, Callable[[TraceSummary], bool]] = {
    "all": lambda _: True,
    "conversations": lambda _: True,
    "failed": lambda row: row.state == "failed",
    "offered, not called": lambda row: (
        not EXPLAINS_NO_CALL.isdisjoint(row.notes) and not row.called
    ),
    "asked": lambda row: "asked" in row.notes,
    "repaired": lambda row: row.repairs > 0,
    "saved": lambda row: row.turns_saved > 0,
    "running": lambda row: row.state == "running",
}
FIELDS: Mapping[str, Callable[[TraceSummary], Collection[str]]] = {
    "model": lambda row: [row.model],
    "client": lambda row: [row.client_label],
    "front": lambda row: [row.front],
    "state": lambda row: [row.state],
    "tool": lambda row: row.words,
}
"""Filters by a value that the requests have: query parameter -> the values of a request."""
SINCE: Mapping[str, float] = {"5 minutes": 300, "1 hour": 3600, "6 hours": 21600}
"""Values of the parameter ``since`` -> seconds."""
PARAMETERS = ("q", "show", "page", "since", "conversation", *FIELDS)


@dataclass(frozen=True)
class TracePage:
    """A page of the list, the newest request first."""

    rows: Sequence[TraceSummary]
    total: int
    page: int
    pages: int
    query: str
    filter_name: str
    selected: Mapping[str, str] = field(default_factory=dict)
    """The chosen values of `FIELDS`, and of ``since`` and ``conversation``."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """With ``show=conversations``: the number of requests of each conversation, by its last one's id."""
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The most frequent values of all requests first; the chosen value is among them."""
    sums: Mapping[str, int] = field(default_factory=dict)
    """Of all requests that are found: ``tokens_in``, ``tokens_out``, ``turns_saved`` and ``repairs``, and how
    many have estimated tokens (``is_estimated``)."""

    def link(self, page: int | None = None, filter_name: str | None = None) -> dict[str, str]:
        """The query parameters of another page, or of another filter."""
        values = {
            "q": self.query,
            "show": filter_name or self.filter_name,
            "page": str(page or 1),
        }
        defaults = {"q": "", "show": "all", "page": "1"}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        return changed | dict(self.selected)


def select_page(
    rows: Sequence[TraceSummary], parameters: Mapping[str, str], now: float
) -> TracePage:
    """Select by ``q`` (words), ``show`` (a filter), `FIELDS`, ``since``, ``conversation`` (the id of one of
    its requests) and ``page``. ``show=conversations`` has the last request of each. Invalid values are
    ignored.
    """
    query = parameters.get("q", "").strip()[:_MAX_QUERY]
    name = parameters.get("show", "all")
    name = name if name in FILTERS else "all"
    is_shown = FILTERS[name]
    selected = {key: value for key in FIELDS if (value := parameters.get(key, "")[:_MAX_QUERY])}
    oldest = 0.0
    if (since := parameters.get("since", "")) in SINCE:
        oldest, selected["since"] = now - SINCE[since], since
    values = [(FIELDS[key], value) for key, value in selected.items() if key in FIELDS]
    found = [
        row
        for row in rows
        if row.began >= oldest
        and is_shown(row)
        and all(value in values_of(row) for values_of, value in values)
        and (not query or _matches(row, query))
    ]
    sizes: dict[str, int] = {}
    if (wanted := parameters.get("conversation", "")[:_MAX_QUERY]) or name == "conversations":
        groups = conversations(rows)
        if wanted:
            selected["conversation"] = wanted
            own = next((group for group in groups if wanted in group), ())
            found = [row for row in found if row.id in own]
        if name == "conversations":
            last = {group[-1]: len(group) for group in groups}
            found = [row for row in found if row.id in last]
            sizes = {row.id: last[row.id] for row in found}
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    number = parameters.get("page", "1")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 1
    page = min(max(page, 1), pages)
    start = (page - 1) * ROWS_PER_PAGE
    choices: dict[str, list[str]] = {}
    for key, of in FIELDS.items():
        count = Counter(value for row in rows for value in of(row) if value)
        choices[key] = [value[:_MAX_QUERY] for value, _ in count.most_common(_MAX_CHOICES)]
        if (chosen := selected.get(key)) and chosen not in choices[key]:
            choices[key].append(chosen)
    names = ("tokens_in", "tokens_out", "turns_saved", "repairs", "is_estimated")
    sums = {name: sum(getattr(row, name) for row in found) for name in names}
    shown = found[start : start + ROWS_PER_PAGE]
    return TracePage(shown, len(found), page, pages, query, name, selected, sizes, choices, sums)


def conversations(rows: Sequence[TraceSummary]) -> list[list[str]]:
    """The ids of the requests of each conversation, in order: each prompt begins with the whole of the one
    before. ``rows`` are newest first."""
    groups: list[list[str]] = []
    by_prompt: dict[tuple[str, str, int], list[str]] = {}
    for row in reversed(rows):
        keys = []
        digest = 0
        for checksum in row.prompt:
            digest = zlib.crc32(checksum.to_bytes(4), digest)
            keys.append((row.client, row.model, digest))
        group = next((by_prompt[key] for key in reversed(keys[:-1]) if key in by_prompt), None)
        if group is None:
            groups.append(group := [])
        group.append(row.id)
        if keys:
            by_prompt[keys[-1]] = group
    return groups


def _matches(row: TraceSummary, query: str) -> bool:
    """Return True if a shown text contains the query in any case, or the body contains it exactly."""
    lowered = query.lower()
    shown = (
        row.id, row.answer_id, *row.calls, row.question, row.container,
        row.model, row.reply, row.client, row.client_name, row.upstream, row.error, row.path,
        *row.words,
    )  # fmt: skip
    return any(lowered in text.lower() for text in shown) or query.encode() in row.body
