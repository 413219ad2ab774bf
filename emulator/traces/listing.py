"""The list of requests: filter, search, and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emulator.traces.summary import TraceSummary

ROWS_PER_PAGE = 50
_MAX_QUERY = 200
FILTERS: Mapping[str, Callable[[TraceSummary], bool]] = {
    "all": lambda _: True,
    "failed": lambda row: row.state == "failed",
    "repaired": lambda row: row.repairs > 0,
    "saved": lambda row: row.turns_saved > 0,
    "running": lambda row: row.state == "running",
}


@dataclass(frozen=True)
class TracePage:
    """A page of the list, the newest request first."""

    rows: Sequence[TraceSummary]
    total: int
    page: int
    pages: int
    query: str
    filter_name: str

    def link(self, page: int | None = None, filter_name: str | None = None) -> dict[str, str]:
        """The query parameters of another page, or of another filter."""
        values = {
            "q": self.query,
            "show": filter_name or self.filter_name,
            "page": str(page or 1),
        }
        defaults = {"q": "", "show": "all", "page": "1"}
        return {name: value for name, value in values.items() if value != defaults[name]}


def select_page(rows: Sequence[TraceSummary], parameters: Mapping[str, str]) -> TracePage:
    """Select by ``q`` (words), ``show`` (a filter) and ``page``. Invalid values are ignored."""
    query = parameters.get("q", "").strip()[:_MAX_QUERY]
    name = parameters.get("show", "all")
    name = name if name in FILTERS else "all"
    is_shown = FILTERS[name]
    found = [row for row in rows if is_shown(row) and (not query or _matches(row, query))]
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    number = parameters.get("page", "1")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 1
    page = min(max(page, 1), pages)
    start = (page - 1) * ROWS_PER_PAGE
    return TracePage(found[start : start + ROWS_PER_PAGE], len(found), page, pages, query, name)


def _matches(row: TraceSummary, query: str) -> bool:
    """Return True if a shown text contains the query in any case, or the body contains it exactly."""
    lowered = query.lower()
    shown = (
        row.id, row.container, row.model, row.client, row.client_name, row.upstream, row.error, row.path,
        *row.words,
    )  # fmt: skip
    return any(lowered in text.lower() for text in shown) or query.encode() in row.body
