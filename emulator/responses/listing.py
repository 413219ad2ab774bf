"""Pages of a response's input items: ``after``, ``limit`` and ``order``, as OpenAI's lists have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.errors import BadRequest
from emulator.responses.items import Json, quoted

MAX_LIMIT = 100


def page(items: Sequence[Json], query: Mapping[str, str]) -> Json:
    """The page that ``query`` asks for, newest first unless it says otherwise. Raises `BadRequest`."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest(f"order is {quoted(order)}; expected asc or desc.", "order")
    limit = query.get("limit", "20")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:4]) <= MAX_LIMIT:
        raise BadRequest(f"limit must be a number from 1 to {MAX_LIMIT}.", "limit")
    listed = [*items] if order == "asc" else [*reversed(items)]
    if after := query.get("after"):
        places = [n for n, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise BadRequest(f"after: there is no item {quoted(after)}.", "after")
        listed = listed[places[-1] + 1 :]
    shown = listed[: int(limit)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(listed) > len(shown),
    }
