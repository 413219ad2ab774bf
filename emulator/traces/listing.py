"""The list of requests: which of them are asked for, and a page of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emulator.traces.row import Row

PAGE = 50
MOST_OF_CONTAINER = 50
"""Requests of one container that are shown, the newest."""
_MOST_QUERY = 200
FILTERS: Mapping[str, Callable[[Row], bool]] = {
    "all": lambda _: True,
    "failed": lambda row: row.state == "failed",
    "repaired": lambda row: row.repairs > 0,
    "saved": lambda row: row.turns_saved > 0,
    "running": lambda row: row.state == "running",
}


@dataclass(frozen=True)
class Listing:
    """A page of the list, the newest first."""

    rows: Sequence[Row]
    total: int
    page: int
    pages: int
    query: str
    chosen: str

    def link(self, page: int | None = None, chosen: str | None = None) -> dict[str, str]:
        """The query of another page, or of the same one with another filter."""
        wanted = {
            "q": self.query,
            "show": chosen or self.chosen,
            "page": str(page or 1),
        }
        plain = {"q": "", "show": "all", "page": "1"}
        return {name: value for name, value in wanted.items() if value != plain[name]}


def listing(rows: Sequence[Row], asked: Mapping[str, str]) -> Listing:
    """What ``asked`` wants to see: ``q`` words, ``show`` a filter, ``page``; nonsense is ignored."""
    query = asked.get("q", "").strip()[:_MOST_QUERY]
    chosen = asked.get("show", "all")
    chosen = chosen if chosen in FILTERS else "all"
    shown = FILTERS[chosen]
    found = [one for one in rows if shown(one) and (not query or _matches(one, query))]
    pages = max(1, -(-len(found) // PAGE))
    number = asked.get("page", "1")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 1
    page = min(max(page, 1), pages)
    return Listing(found[(page - 1) * PAGE : page * PAGE], len(found), page, pages, query, chosen)


def _matches(row: Row, query: str) -> bool:
    """Whether any of what a list shows has the words, in any case, or the body has them as they stand."""
    words = query.lower()
    shown = (
        row.id, row.model, row.client, row.client_name, row.upstream, row.error, row.path, *row.words,
    )  # fmt: skip
    return any(words in text.lower() for text in shown) or query.encode() in row.body
