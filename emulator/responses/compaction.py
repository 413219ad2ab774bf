"""Replace a conversation with a summary: ``/responses/compact`` returns it, and a later request sends it
back.

The summary's item is opaque to clients but not secret: it contains only text that the client may read, and a
client that changes it could have sent the same text as a message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from emulator.answering.summary import introduced
from emulator.events import new_id
from emulator.responses.items import Json

_MARK = "summary:"


def compacted(items: Sequence[Json], summary: str) -> list[Json]:
    """Return the output: the user's messages, and one item that summarizes all other items."""
    questions = [item for item in items if item["type"] == "message" and item.get("role") == "user"]
    hidden = base64.b64encode(f"{_MARK}{summary}".encode()).decode()
    return [*questions, {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": hidden}]


def summary_of(hidden: str) -> str | None:
    """Return the text for the model from a ``compaction`` item; None if the item was not made by
    `compacted`."""
    try:
        text = base64.b64decode(hidden, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return introduced(text.removeprefix(_MARK)) if text.startswith(_MARK) else None
