"""Lists that clients read page by page, like OpenAI's: after, limit, order. Knows nothing of the items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.core.errors import BadRequest

MAX_ITEMS = 100
"""Items on a page."""


def page_among(
    items: Sequence[Mapping[str, Any]],
    query: Mapping[str, str],
    prefix: str = "",
    *,
    default: int = 20,
    most: int = MAX_ITEMS,
) -> dict[str, Any]:
    """The page of ``items`` (oldest first) that a query string asks for, as OpenAI's JSON object.

    With ``prefix``, all ids begin with it and sort by age (`emulator.storage.blob_store.BlobStore.new_id`): a
    cursor is then a position between ids, so a client may delete items while it reads the list. Raises
    `BadRequest`.
    """
    limit, is_ascending = _limit(query, default, most), _is_ascending(query)
    listed = [*items] if is_ascending else [*reversed(items)]
    if after := query.get("after"):
        if prefix:
            if not re.fullmatch(prefix + "[0-9a-f]{32}", after):
                message = f"Invalid 'after': expected an id that begins with {prefix}."
                raise BadRequest(message, "after")
            listed = [
                item
                for item in listed
                if item["id"] != after and (item["id"] > after) == is_ascending
            ]
        else:
            positions = [n for n, item in enumerate(listed) if item["id"] == after]
            if not positions:
                raise BadRequest("Invalid 'after': no listed item has this id.", "after")
            listed = listed[positions[-1] + 1 :]
    shown = listed[:limit]
    return {
        "object": "list",
        "data": shown,
        # OpenAI's schemas require strings here, also for an empty list.
        "first_id": shown[0]["id"] if shown else "",
        "last_id": shown[-1]["id"] if shown else "",
        "has_more": len(listed) > limit,
    }


def _limit(query: Mapping[str, str], default: int, most: int) -> int:
    limit = query.get("limit", str(default))
    if not re.fullmatch("[0-9]{1,6}", limit) or not 1 <= int(limit) <= most:
        raise BadRequest(f"Invalid 'limit': expected an integer from 1 to {most}.", "limit")
    return int(limit)


def _is_ascending(query: Mapping[str, str]) -> bool:
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("Invalid 'order': expected asc or desc.", "order")
    return order == "asc"
