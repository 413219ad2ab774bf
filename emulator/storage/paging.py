"""Lists that are read page by page, as OpenAI's are: after, limit, order. Knows nothing of what is listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from emulator.errors import BadRequest


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    def json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Listed)


@dataclass(frozen=True)
class Page:
    """A piece of a list whose ids sort by age (`emulator.storage.blob_store.Folder.new_id`).

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
        return {
            "object": "list",
            "data": [item.json() for item in self.items],
            # OpenAI's schemas want strings here, also of a list that is empty.
            "first_id": self.items[0].id if self.items else "",
            "last_id": self.items[-1].id if self.items else "",
            "has_more": self.has_more,
        }


def listing(page: Page, found: Sequence[T]) -> Listing[T]:
    """The rows that `Page.clause` selected, without the one too many."""
    return Listing(found[: page.limit], len(found) > page.limit)


def parse_page(
    query: Mapping[str, str], prefix: str, *, default: int = 20, most: int = 100
) -> Page:
    """Read a page from a query string. Raises `BadRequest`; ``prefix`` is that of the listed ids."""
    after = query.get("after") or None
    if after is not None and not re.fullmatch(prefix + "[0-9a-f]{32}", after):
        raise BadRequest(f"Invalid 'after': expected an id that begins with {prefix}.", "after")
    limit = query.get("limit", str(default))
    if not re.fullmatch("[0-9]{1,6}", limit) or not 1 <= int(limit) <= most:
        raise BadRequest(f"Invalid 'limit': expected an integer from 1 to {most}.", "limit")
    orders: dict[str, Literal["asc", "desc"]] = {"asc": "asc", "desc": "desc"}
    order = orders.get(query.get("order", "desc"))
    if order is None:
        raise BadRequest("Invalid 'order': expected asc or desc.", "order")
    return Page(after, int(limit), order)
