"""Whose program it is, and what it answered: a program goes on only for the same client, in the same talk.

The ids of calls are no secret (clients show, log and share conversations), so they alone must not open a
program. And a program was written for the messages before it: whoever has edited the question or the
instructions wants another answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import json_codec
from emulator.protocol import Message

_MADE_SINCE = ("assistant", "tool", "function")


@dataclass(frozen=True)
class Origin:
    """A client and the ``count`` messages that its program answers, as a ``digest``."""

    count: int = 0
    digest: str = ""
    """Of no client, unless `of` made it."""

    @classmethod
    def of(cls, client: str, messages: Sequence[Message]) -> Origin:
        digest = hashlib.sha256(client.encode())
        for message in messages:
            # Each with its length: no two conversations are made of the same bytes.
            said = json_codec.dumps(_said(message), default=repr, option=json_codec.SORTED)
            digest.update(b"%d:" % len(said) + said)
        return cls(len(messages), digest.hexdigest())

    def fits(self, client: str, messages: Sequence[Message], start: int) -> bool:
        """Whether ``messages[start]`` still answers what it answered, and asks for the same client."""
        if start < self.count or Origin.of(client, messages[: self.count]) != self:
            return False
        # What the proxy itself answered before it came to this program: cells, say.
        return all(message.role in _MADE_SINCE for message in messages[self.count : start])


def _said(message: Message) -> list[Any]:
    """What a message says, in whichever of the equal ways its client writes it this time."""
    calls = [(call.id, *_called(call.as_function)) for call in message.tool_calls or ()]
    return [
        message.role,
        message.name or "",
        message.text,
        message.other_parts,
        calls,
        _called(message.function_call),
        message.tool_call_id or "",
    ]


def _called(function: Any) -> tuple[str, Any]:
    if function is None:
        return "", None
    try:
        return function.name, json_codec.loads(function.arguments)
    except json_codec.NotJSON:
        return function.name, function.arguments
