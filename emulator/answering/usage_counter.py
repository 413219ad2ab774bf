"""Counts the tokens of one answer over all its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.events import Usage
from emulator.upstream.interface import Chunk

# What the upstream may tell of its figures; it is told only where they are those of one turn.
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def estimate_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Of a prompt that no tokenizer has seen: four characters a token."""
    return sum(len(str(message["content"])) for message in messages) // 4


class UsageCounter:
    """The last turn's prompt is counted, and every turn's completion.

    When we close a reply before the upstream has told its usage, a chunk that says something counts as a
    token, and four characters of a prompt as one. Chunks that came together with the last one that was
    needed are counted too: they were made.
    """

    def __init__(self) -> None:
        self._completion = 0
        self._prompts = 0
        self._turns = 0
        self._deltas = 0
        self._reported: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """A further turn."""
        self._completion += self._of_this_turn()
        self._prompts += int((self._reported or {}).get("prompt_tokens") or 0)
        self._turns += 1
        self._deltas, self._reported = 0, None

    def count(self, chunk: Chunk) -> None:
        self._deltas += any(choice.get("delta") for choice in chunk.get("choices") or ())
        self._reported = chunk.get("usage") or self._reported

    def _of_this_turn(self) -> int:
        return int((self._reported or {}).get("completion_tokens") or self._deltas)

    @property
    def completion(self) -> int:
        """Tokens of all replies so far."""
        return self._completion + self._of_this_turn()

    def usage(self, messages: Sequence[Mapping[str, Any]]) -> Usage:
        """What to tell the client; ``messages`` are those of the last turn."""
        prompt = (self._reported or {}).get("prompt_tokens")
        if prompt is None:
            prompt = estimate_tokens(messages)
        usage = Usage(int(prompt), self.completion)
        if self._turns < 2:
            reported = self._reported or {}
            return replace(
                usage, details={name: reported[name] for name in _DETAILS if reported.get(name)}
            )
        # What the repairs cost is told beside, not in, the figure that clients compare with a context.
        repaired = {"model_turns": self._turns, "prompt_tokens": self._prompts + int(prompt)}
        return replace(usage, details={"emulator": repaired})
