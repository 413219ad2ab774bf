"""Lists that are read page by page, as OpenAI's are: after, limit, order. Knows nothing of what is listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from emulator.errors import BadRequest

MOST = 100
"""Items of a page."""


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    def json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Listed)


@dataclass(frozen=True)
class Page:
    """A piece of a list whose ids sort by age (`emulator.storage.blob_store.BlobStore.new_id`).

    The cursor is a place between ids, so a list can be read while what has been read is deleted.
    """

    after: str | None = None
    limit: int = 20
    order: Literal["asc", "desc"] = "desc"

    @property
    def clause(self) -> str:
        """The end of a query's WHERE that selects this page, and one row more if there is one."""
        before = ">" if self.order == "asc" else "<"
        place = f" AND id {before} :after" if self.after else ""
        return f"{place} ORDER BY id {self.order} LIMIT :limit + 1"

    @property
    def values(self) -> dict[str, object]:
        return {"after": self.after, "limit": self.limit}


@dataclass(frozen=True)
class Listing(Generic[T]):
    items: Sequence[T]
    has_more: bool = False

    def json(self) -> dict[str, Any]:
        """The list as OpenAI's JSON object."""
        return _shown([item.json() for item in self.items], has_more=self.has_more)


def listing(page: Page, found: Sequence[T]) -> Listing[T]:
    """The rows that `Page.clause` selected, without the one too many."""
    return Listing(found[: page.limit], len(found) > page.limit)


def parse_page(
    query: Mapping[str, str], prefix: str, *, default: int = 20, most: int = MOST
) -> Page:
    """Read a page from a query string. Raises `BadRequest`; ``prefix`` is that of the listed ids."""
    after = query.get("after") or None
    if after is not None and not re.fullmatch(prefix + "[0-9a-f]{32}", after):
        raise BadRequest(f"Invalid 'after': expected an id that begins with {prefix}.", "after")
    return Page(after, _limit(query, default, most), _order(query))


def page_among(items: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of ``items``, oldest first, that a query string asks for, as OpenAI's JSON object.

    Their ids need not sort. Raises `BadRequest`.
    """
    limit = _limit(query, 20, MOST)
    listed = [*items] if _order(query) == "asc" else [*reversed(items)]
    if after := query.get("after"):
        places = [n for n, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise BadRequest("Invalid 'after': no listed item has this id.", "after")
        listed = listed[places[-1] + 1 :]
    return _shown(listed[:limit], has_more=len(listed) > limit)


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


def _shown(items: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [*items],
        # OpenAI's schemas want strings here, also of a list that is empty.
        "first_id": items[0]["id"] if items else "",
        "last_id": items[-1]["id"] if items else "",
        "has_more": has_more,
    }
