"""A prompt as it was sent, beside the one before it: what a prefix cache could have kept, and what is new."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emulator.traces import Turn

_MOST_LINES = 2000
"""Of two texts that are compared line by line; `difflib` takes their product at worst."""

Line = tuple[Literal["same", "gone", "new", "place"], str]


@dataclass(frozen=True)
class Message:
    role: str
    text: str
    state: Literal["cached", "new", "changed"]
    """``cached``: the same as in the prompt before, as is all that stands before it."""
    diff: tuple[Line, ...] = ()
    """Of one that has changed: from the one that stood in its place."""


@dataclass(frozen=True)
class Prompt:
    messages: tuple[Message, ...]
    before: str
    """What it is compared with: ``turn`` (the one before in this request), an id of a request, or ""."""
    cached: int = 0
    """Characters at its beginning that are the same."""
    chars: int = 0

    @property
    def share(self) -> int:
        """Per cent of the prompt that a prefix cache could have kept."""
        return round(100 * self.cached / self.chars) if self.chars else 0


def prompt(turn: Turn, before: Turn | None, named: str) -> Prompt:
    """``before`` is what ``turn`` is compared with, and ``named`` what that is called."""
    texts = [(str(one.get("role", "")), text_of(one)) for one in turn.messages]
    old = [] if before is None else [(str(m.get("role", "")), text_of(m)) for m in before.messages]
    shown: list[Message] = []
    cached, same = 0, True
    for place, (role, text) in enumerate(texts):
        other = old[place] if place < len(old) else None
        if same and other == (role, text):
            cached += len(text)
            shown.append(Message(role, text, "cached"))
            continue
        if same and other is not None and other[0] == role:
            cached += _common(other[1], text)
            shown.append(Message(role, text, "changed", tuple(diff(other[1], text))))
        else:
            shown.append(Message(role, text, "new"))
        same = False
    chars = sum(len(text) for _, text in texts)
    return Prompt(tuple(shown), named if before else "", cached, chars)


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says; parts that are no text, and calls, as JSON."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [
        str(part["text"])
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        else part
        if isinstance(part, str)
        else json.dumps(part, ensure_ascii=False, default=str)
        for part in parts
        if part is not None
    ]
    others = {k: v for k, v in message.items() if k not in ("role", "content") and v is not None}
    if others:
        texts.append(json.dumps(others, ensure_ascii=False, default=str))
    return "\n".join(texts)


def diff(old: str, new: str) -> list[Line]:
    """The lines that changed, and some around them."""
    before, after = old.splitlines()[:_MOST_LINES], new.splitlines()[:_MOST_LINES]
    kinds: dict[str, Literal["same", "gone", "new"]] = {" ": "same", "-": "gone", "+": "new"}
    return [
        ("place", line) if line.startswith("@@") else (kinds[line[0]], line[1:])
        for line in [*difflib.unified_diff(before, after, lineterm="", n=3)][2:]
    ]


def _common(one: str, other: str) -> int:
    """Characters that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
