"""Where a text that comes in pieces may end with the beginning of something."""

from __future__ import annotations


def overlap(text: str, word: str) -> int:
    """The length of the longest beginning of ``word``, short of all of it, that ``text`` ends with."""
    longest = min(len(word) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(word[:n])), 0)
