"""What was seen but not done: one sentence each, written by the room that knows, with the way out.

Pages, the list's filters, the log, `explain`, headers and spans read them. Nothing that acts does: traces may
be off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NoteKind = Literal[
    "call-in-words",
    "call-in-code",
    "call-in-table",
    "call-in-reasoning",
    "no-call",
    "unknown-name",
    "shown",
    "asked",
    "repaired",
    "no-better-reply",
    "cut-off",
    "filtered",
    "refusal",
    "calls-forbidden",
    "needs-approval",
    "client-left",
    "missing-result",
    "unknown-outcome",
    "prompt-cut",
    "dropped-tools",
    "ignored-fields",
    "not-stored",
    "limit-open",
]
EXPLAINS_NO_CALL: frozenset[NoteKind] = frozenset(
    (
        "call-in-words", "call-in-code", "call-in-table", "call-in-reasoning", "no-call",
        "unknown-name", "shown", "asked", "repaired", "no-better-reply", "cut-off", "filtered", "refusal",
        "calls-forbidden", "client-left",
    )
)  # fmt: skip
"""The kinds that say why an answer has no call."""
MAX_NOTES = 50
_MAX_CHARS = 1000


@dataclass(frozen=True)
class Note:
    """``words`` are a sentence about the request, ``way_out`` what its user or the operator can do, or ""."""

    kind: NoteKind
    words: str
    way_out: str = ""

    @classmethod
    def of(cls, kind: NoteKind, words: str, way_out: str = "") -> Note:
        """A note of bounded length."""
        return cls(kind, words[:_MAX_CHARS], way_out[:_MAX_CHARS])
