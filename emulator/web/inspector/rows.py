"""The list of requests: which of them are asked for, and a page of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emulator.traces import Trace

PAGE = 50
_MOST_QUERY = 200
FILTERS: Mapping[str, Callable[[Trace], bool]] = {
    "all": lambda _: True,
    "failed": lambda trace: trace.state == "failed",
    "repaired": lambda trace: trace.repairs > 0,
    "saved": lambda trace: trace.turns_saved > 0,
    "running": lambda trace: trace.state == "running",
}


@dataclass(frozen=True)
class Rows:
    """A page of the list, the newest first."""

    traces: Sequence[Trace]
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


def rows(traces: Sequence[Trace], asked: Mapping[str, str]) -> Rows:
    """What ``asked`` wants to see: ``q`` words, ``show`` a filter, ``page``; nonsense is ignored."""
    query = asked.get("q", "").strip()[:_MOST_QUERY]
    chosen = asked.get("show", "all")
    chosen = chosen if chosen in FILTERS else "all"
    shown = FILTERS[chosen]
    found = [one for one in traces if shown(one) and (not query or _matches(one, query))]
    pages = max(1, -(-len(found) // PAGE))
    number = asked.get("page", "1")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 1
    page = min(max(page, 1), pages)
    return Rows(found[(page - 1) * PAGE : page * PAGE], len(found), page, pages, query, chosen)


def _matches(trace: Trace, query: str) -> bool:
    """Whether any of what a list shows has the words, in any case, or the body has them as they stand."""
    words = query.lower()
    shown = (
        trace.id, trace.model, trace.client, trace.client_name, trace.upstream, trace.error, trace.path,
        *trace.tools, *(call.name for call in trace.calls),
    )  # fmt: skip
    return any(words in text.lower() for text in shown) or query.encode() in trace.body
