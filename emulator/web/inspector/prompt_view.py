"""A prompt compared with the one before it: the part that a prefix cache could reuse, and the rest."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from operator import eq
from typing import Any, Literal

from emulator.traces import Turn

TURN = "turn"
_STARTS = 100
_MAX_LINES = 2000
"""Longest texts that are compared line by line: the worst case of `difflib` is their product."""

DiffLine = tuple[Literal["same", "gone", "new", "place"], str]


@dataclass(frozen=True)
class MessageView:
    role: str
    text: str
    state: Literal["cached", "new", "changed"]
    """``cached``: equal to the prompt before, and so is every earlier message."""
    diff: tuple[DiffLine, ...] = ()
    """For ``changed``: the difference from the message at the same place in the prompt before."""

    @property
    def start(self) -> str:
        """How the text begins, in one line."""
        return " ".join(self.text[: 2 * _STARTS].split())[:_STARTS]


@dataclass(frozen=True)
class PromptView:
    messages: tuple[MessageView, ...]
    before: str
    """What it is compared with: ``turn`` (the previous one of this request), the id of a request, or ""."""
    cached: int = 0
    """Length of the common prefix in characters."""
    chars: int = 0

    @property
    def prefix(self) -> list[MessageView]:
        """The messages that begin the prompt before, too."""
        return [*takewhile(_is_cached, self.messages)]

    @property
    def rest(self) -> list[MessageView]:
        return [*dropwhile(_is_cached, self.messages)]

    @property
    def share(self) -> int:
        """Percentage of the prompt that a prefix cache could reuse."""
        return round(100 * self.cached / self.chars) if self.chars else 0


def _is_cached(message: MessageView) -> bool:
    return message.state == "cached"


def prompt_view(turn: Turn, before: Turn | None, label: str) -> PromptView:
    """Compare ``turn`` with ``before``, which the page calls ``label``."""
    texts = [(str(one.get("role", "")), text_of(one)) for one in turn.messages]
    old = [] if before is None else [(str(m.get("role", "")), text_of(m)) for m in before.messages]
    shown: list[MessageView] = []
    cached, same = 0, True
    is_own = label == TURN
    """The prompt before is of the same conversation: with another one only the prefix is compared."""
    for place, (role, text) in enumerate(texts):
        other = old[place] if place < len(old) else None
        if same and other == (role, text):
            cached += len(text)
            is_own = is_own or role not in ("system", "developer")
            shown.append(MessageView(role, text, "cached"))
            continue
        if same and is_own and other is not None and other[0] == role:
            cached += sum(takewhile(bool, map(eq, other[1], text)))
            shown.append(MessageView(role, text, "changed", tuple(diff(other[1], text))))
        else:
            shown.append(MessageView(role, text, "new"))
        same = False
    chars = sum(len(text) for _, text in texts)
    return PromptView(tuple(shown), label if before else "", cached, chars)


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, with calls and other parts as JSON."""
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


def diff(old: str, new: str) -> list[DiffLine]:
    """The changed lines with three lines of context."""
    before, after = old.splitlines()[:_MAX_LINES], new.splitlines()[:_MAX_LINES]
    kinds: dict[str, Literal["same", "gone", "new"]] = {" ": "same", "-": "gone", "+": "new"}
    return [
        ("place", line) if line.startswith("@@") else (kinds[line[0]], line[1:])
        for line in [*difflib.unified_diff(before, after, lineterm="", n=3)][2:]
    ]
