"""Find an answer that ends with the promise of a call. Knows nothing of code."""

from __future__ import annotations

import re

_SENTENCES = 3
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_PROMISE = re.compile(
    r"(?:\b(?:I'll|I will|I am going to|I'm going to|let me|let's)\s+(?:now\s+|first\s+|just\s+)?"
    r"(?:check|look|call|use|get|fetch|find|search|retrieve|query|run|see)\b)[^.!?\n]*[.!:\u2026]*\s*$",
    re.IGNORECASE,
)
_WAITS_FOR_USER = _words(
    r"\?",
    r"\b(?:confirm\w*|permission|approval|consent|approve|go-ahead)\b",
    r"\b(?:let me know|tell me|say (?:yes|ok|okay|go|so|the word|when)|reply (?:with|yes)"
    r"|give me (?:the|a|your)|send me"
    r"|share (?:the|your)|provide (?:me|the|a|your)|specify|choose|pick)\b",
    r"\b(?:once|after|when|whenever|as soon as|if|unless|until|before) (?:you|your|that is|that's"
    r"|i have|i know|i get|i receive|it is|necessary|needed)\b",
    r"\b(?:need|require)\b[^.]{0,60}\b(?:from you|first|before|to know|your)\b|\bjust ask\b|\bfeel free\b",
    r"\b(?:next time|in (?:the )?future|from now on|tomorrow|later|another time|going forward)\b",
)
_MAX_PROMISE = 2000


def promises_call(prose: str) -> bool:
    """Return True if an answer ends with a promise to call that waits for nothing.

    "Let me check the weather." at the end of a reply without a call; but not "Let me know", nor a promise
    that depends on the user's answer.
    """
    end = prose[-_MAX_PROMISE:]
    if not _PROMISE.search(end):
        return False
    return not any(map(_WAITS_FOR_USER.search, _END.split(end.strip())[-_SENTENCES:]))
