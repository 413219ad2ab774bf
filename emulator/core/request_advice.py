"""What to write instead, for requests that users often send by mistake: a sentence after the error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Row:
    place: str
    """A regular expression for the whole place of the error."""
    sentence: str
    api: str = ""
    """The model of the request, or "" for all."""
    field: str = ""
    """A field that the request has, too."""


_CHAT, _RESPONSES, _MESSAGES = "ChatCompletionRequest", "ResponseRequest", "MessagesRequest"
_ROWS = (
    _Row(
        "messages", '"input" belongs to the Responses API: send it to /v1/responses', field="input"
    ),
    _Row("messages", '"prompt" belongs to /v1/completions', field="prompt"),
    _Row("messages", 'it is a list such as [{"role": "user", "content": "Hello"}]'),
    _Row(
        "tool_choice",
        'a function is named as {"type": "function", "function": {"name": "..."}}, and any as "required"',
        _CHAT,
    ),
    _Row("tool_choice", 'it is an object such as {"type": "auto"}', _MESSAGES),
    _Row("max_tokens", "the most tokens of the answer, such as 4096", _MESSAGES),
    _Row(r".*\.arguments", r'arguments are JSON in a string, such as "{\"location\": \"Oslo\"}"'),
    _Row(r".*messages\[\d+\]\.content", "write an object as JSON in a string"),
    _Row(r"tools", "put a single tool into a list"),
    _Row("model", "name one of the list GET /v1/models"),
)


def advice(api: str, place: str, request: Any) -> str:
    """The sentence for an error at ``place``, with a space before it, or "". ``api`` is the name of the
    request's model."""
    fields = request if isinstance(request, Mapping) else {}
    for row in _ROWS:
        fits = row.api in ("", api) and (not row.field or row.field in fields)
        if fits and re.fullmatch(row.place, place):
            return f" {row.sentence[:1].upper()}{row.sentence[1:]}."
    return ""
