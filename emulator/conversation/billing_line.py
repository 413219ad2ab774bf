"""Remove Claude Code's billing line from system messages.

The line is for Anthropic's billing, and its value changes with each request: a prompt that contains it does
not begin with the bytes of the previous prompt, so a model server's prefix cache never applies
(anthropics/claude-code#68900). It may be anywhere in a system text, of any front: converters send Claude
Code's requests as chat completions. Messages of other roles stay as they are: a user may quote the line.
"""

from __future__ import annotations

import re
from operator import is_
from typing import Any

from emulator.core.errors import BadRequest
from emulator.core.protocol import ChatCompletionRequest, Message

_NAME = "x-anthropic-billing-header:"
_LINE = re.compile(rf"^{_NAME}.*(?:\n|\Z)", re.MULTILINE)


def without_billing_line(text: str) -> str:
    """Return ``text`` without the line and its line end."""
    return _LINE.sub("", text) if _NAME in text else text


def without_billing_lines(chat: ChatCompletionRequest) -> ChatCompletionRequest:
    """Remove the line from the system messages; a message or a part that is nothing else is removed as a
    whole.

    Raises `BadRequest` if no message remains.
    """
    remaining: list[Message] = []
    for message in chat.messages:
        is_system = message.role in ("system", "developer")
        shown = _without_line(message) if is_system else message
        if shown is not None:
            remaining.append(shown)
    if not remaining:
        raise BadRequest("messages have no content to answer.", param="messages")
    is_same = len(remaining) == len(chat.messages) and all(map(is_, remaining, chat.messages))
    return chat if is_same else chat.with_messages(remaining)


def _without_line(message: Message) -> Message | None:
    content: str | list[dict[str, Any]]
    match message.content:
        case str(text):
            content = without_billing_line(text)
        case [*parts]:
            shown = [(part, _part_without_line(part)) for part in parts]
            content = [after for before, after in shown if after.get("text") or after == before]
        case _:
            return message
    if content == message.content:
        return message
    return message.model_copy(update={"content": content}) if content else None


def _part_without_line(part: dict[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    return {**part, "text": without_billing_line(text)} if isinstance(text, str) else part
