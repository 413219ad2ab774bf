"""Bind a stored program to the client and the conversation that it was written for.

Call ids are no secret (clients show, log and share conversations), so an id alone must not resume a
program. And a program answers the messages before it: after an edit of the question or the instructions,
it is no answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import json_codec
from emulator.protocol import FunctionCall, Message

_ANSWER_ROLES = ("assistant", "tool", "function")


@dataclass(frozen=True)
class Origin:
    """A client and the first ``count`` messages of its conversation, as a SHA-256 ``digest``."""

    count: int = 0
    digest: str = ""
    """The default matches no client."""

    @classmethod
    def of(cls, client: str, messages: Sequence[Message]) -> Origin:
        digest = hashlib.sha256(client.encode())
        for message in messages:
            content = json_codec.dumps(_content(message), default=repr, option=json_codec.SORTED)
            # The length prefix makes the encoding injective.
            digest.update(b"%d:" % len(content) + content)
        return cls(len(messages), digest.hexdigest())

    def matches(self, client: str, messages: Sequence[Message], start: int) -> bool:
        """Return True if the program whose first call is in ``messages[start]`` belongs to this client
        and history."""
        if start < self.count or Origin.of(client, messages[: self.count]) != self:
            return False
        # In between, only messages that the proxy itself answered before the program began (cells).
        return all(message.role in _ANSWER_ROLES for message in messages[self.count : start])


def parsed_call(function: FunctionCall | None) -> tuple[str, Any]:
    """Name and arguments of a call in a history; the arguments stay a string if they are not JSON."""
    if function is None:
        return "", None
    try:
        return function.name, json_codec.loads(function.arguments)
    except json_codec.NotJSON:
        return function.name, function.arguments


def _content(message: Message) -> list[Any]:
    """The message's content in one form, since clients may serialize the same message differently each
    time."""
    calls = [(call.id, *parsed_call(call.as_function)) for call in message.tool_calls or ()]
    return [
        message.role,
        message.name or "",
        message.text,
        message.other_parts,
        calls,
        parsed_call(message.function_call),
        message.tool_call_id or "",
    ]
