"""Lists that clients read page by page, like OpenAI's: after, limit, order. Knows nothing of the items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from emulator.errors import BadRequest

MAX_ITEMS = 100
"""Items on a page."""


class ListItem(Protocol):
    @property
    def id(self) -> str: ...

    def json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=ListItem)


@dataclass(frozen=True)
class Page:
    """A page of a list whose ids sort by age (`emulator.storage.blob_store.BlobStore.new_id`).

    The cursor is a position between ids, so a client may delete items while it reads the list.
    """

    after: str | None = None
    limit: int = 20
    order: Literal["asc", "desc"] = "desc"

    @property
    def clause(self) -> str:
        """The end of a query's WHERE that selects this page, and the first row of the next one."""
        comparison = ">" if self.order == "asc" else "<"
        position = f" AND id {comparison} :after" if self.after else ""
        return f"{position} ORDER BY id {self.order} LIMIT :limit + 1"

    @property
    def values(self) -> dict[str, object]:
        return {"after": self.after, "limit": self.limit}


@dataclass(frozen=True)
class Listing(Generic[T]):
    items: Sequence[T]
    has_more: bool = False

    def json(self) -> dict[str, Any]:
        """The list as OpenAI's JSON object."""
        return _list_object([item.json() for item in self.items], has_more=self.has_more)


def listing(page: Page, found: Sequence[T]) -> Listing[T]:
    """The rows that `Page.clause` selected, without the one of the next page."""
    return Listing(found[: page.limit], len(found) > page.limit)


def parse_page(
    query: Mapping[str, str], prefix: str, *, default: int = 20, most: int = MAX_ITEMS
) -> Page:
    """Read a page from a query string. ``prefix`` is that of the items' ids. Raises `BadRequest`."""
    after = query.get("after") or None
    if after is not None and not re.fullmatch(prefix + "[0-9a-f]{32}", after):
        raise BadRequest(f"Invalid 'after': expected an id that begins with {prefix}.", "after")
    return Page(after, _limit(query, default, most), _order(query))


def page_among(items: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of ``items`` (oldest first) that a query string asks for, as OpenAI's JSON object.

    The ids need not sort by age. Raises `BadRequest`.
    """
    limit = _limit(query, 20, MAX_ITEMS)
    listed = [*items] if _order(query) == "asc" else [*reversed(items)]
    if after := query.get("after"):
        positions = [n for n, item in enumerate(listed) if item["id"] == after]
        if not positions:
            raise BadRequest("Invalid 'after': no listed item has this id.", "after")
        listed = listed[positions[-1] + 1 :]
    return _list_object(listed[:limit], has_more=len(listed) > limit)


def _limit(query: Mapping[str, str], default: int, most: int) -> int:
    limit = query.get("limit", str(default))
    if not re.fullmatch("[0-9]{1,6}", limit) or not 1 <= int(limit) <= most:
        raise BadRequest(f"Invalid 'limit': expected an integer from 1 to {most}.", "limit")
    return int(limit)


def _order(query: Mapping[str, str]) -> Literal["asc", "desc"]:
    orders: dict[str, Literal["asc", "desc"]] = {"asc": "asc", "desc": "desc"}
    order = orders.get(query.get("order", "desc"))
    if order is None:
        raise BadRequest("Invalid 'order': expected asc or desc.", "order")
    return order


def _list_object(items: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [*items],
        # OpenAI's schemas require strings here, also for an empty list.
        "first_id": items[0]["id"] if items else "",
        "last_id": items[-1]["id"] if items else "",
        "has_more": has_more,
    }
