"""Counts the tokens of one answer over all its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emulator.respond import Chunk, Usage


class Meter:
    """The last turn's prompt is counted, and every turn's completion.

    When we close a reply before the upstream has told its usage, a chunk counts as a token, and four
    characters of a prompt as one.
    """

    def __init__(self) -> None:
        self._completion = 0
        self._deltas = 0
        self._told: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """A further turn."""
        self._completion += self._of_this_turn()
        self._deltas, self._told = 0, None

    def count(self, chunk: Chunk) -> None:
        self._deltas += bool(chunk.get("choices"))
        self._told = chunk.get("usage") or self._told

    def _of_this_turn(self) -> int:
        return int((self._told or {}).get("completion_tokens") or self._deltas)

    def usage(self, messages: Sequence[Mapping[str, Any]]) -> Usage:
        """What to tell the client; ``messages`` are those of the last turn."""
        prompt = (self._told or {}).get("prompt_tokens")
        if prompt is None:
            prompt = sum(len(str(message["content"])) for message in messages) // 4
        return Usage(int(prompt), self._completion + self._of_this_turn())
