"""Replace a conversation with a summary, which a later request sends back.

``/responses/compact`` returns the user's messages and the summary. A request whose last item is a
``compaction_trigger`` is answered with the summary alone; its client keeps the user's messages (Codex).

The summary's item is opaque to clients but not secret: it contains only text that the client may read, and a
client that changes it could have sent the same text as a message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from emulator.core.events import new_id
from emulator.fronts.responses.item_table import ITEMS
from emulator.fronts.responses.items import TRIGGER, Json

_MARK = "summary:"


def compacted(items: Sequence[Json], summary: str) -> list[Json]:
    """Return the output: the user's messages, and one item that summarizes all other items."""
    questions = [item for item in items if item["type"] == "message" and item.get("role") == "user"]
    return [*questions, compaction_item(new_id(ITEMS["compaction"].prefix), summary)]


def compaction_item(key: str, summary: str) -> Json:
    hidden = base64.b64encode(f"{_MARK}{summary}".encode()).decode()
    return {"id": key, "type": "compaction", "encrypted_content": hidden}


def is_triggered(items: Sequence[Json]) -> bool:
    """Return True if the request asks for a summary: `items.normalize` allows a trigger only at the end."""
    return bool(items) and items[-1]["type"] == TRIGGER


def without_trigger(items: Sequence[Json]) -> list[Json]:
    """Return the items that are content, which alone are stored."""
    return [*items[:-1]] if is_triggered(items) else [*items]


def summary_of(hidden: str) -> str | None:
    """Return the summary in a ``compaction`` item; None if the item was not made here."""
    try:
        text = base64.b64decode(hidden, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return text.removeprefix(_MARK) if text.startswith(_MARK) else None
