"""Count the tokens of one answer over all its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.core.events import Usage
from emulator.upstream.interface import Chunk, characters_of
from emulator.upstream.metering import estimate_tokens, tokens_of

# Details are passed on only if the answer took one turn: they cannot be added up.
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


class UsageCounter:
    """Reports the last turn's prompt and the completions of all turns.

    If the proxy closes a reply before the upstream reports its usage, the tokens are estimated. What arrived
    together with the last chunk that was needed counts as well: the model generated it.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """``tools`` are sent with each prompt, besides its messages."""
        self.tools = tools
        self._turns = 0
        self._earlier_completions = 0
        self._earlier_prompts = 0
        self._characters = 0
        self._reported: Mapping[str, Any] = {}
        self._messages: Sequence[Mapping[str, Any]] = ()

    def start_turn(self, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """``messages``, the turn's prompt, are needed only if another turn may follow."""
        self._earlier_completions = self.completion_tokens
        self._earlier_prompts += self._prompt_tokens(self._messages)
        self._messages = tuple(messages)
        self._turns += 1
        self._characters, self._reported = 0, {}

    def count(self, chunk: Chunk) -> None:
        self._characters += characters_of(chunk.get("choices") or ())
        self._reported = chunk.get("usage") or self._reported

    @property
    def completion_tokens(self) -> int:
        """Tokens of all replies so far."""
        return self._earlier_completions + int(
            self._reported.get("completion_tokens") or tokens_of(self._characters)
        )

    def usage(self, messages: Sequence[Mapping[str, Any]]) -> Usage:
        """The usage to report to the client; ``messages`` are the last turn's prompt."""
        prompt = self._prompt_tokens(messages)
        usage = Usage(prompt, self.completion_tokens)
        if self._turns < 2:
            details = {name: self._reported[name] for name in _DETAILS if self._reported.get(name)}
            return replace(usage, details=details)
        # Clients compare prompt_tokens with a context length, so repairs are reported separately.
        repairs = {"model_turns": self._turns, "prompt_tokens": self._earlier_prompts + prompt}
        return replace(usage, details={"emulator": repairs})

    def _prompt_tokens(self, messages: Sequence[Mapping[str, Any]]) -> int:
        reported = self._reported.get("prompt_tokens")
        return estimate_tokens(messages, self.tools) if reported is None else int(reported)


def total_usage(usages: Sequence[Usage]) -> Usage:
    """The last prompt, and all completions: clients compare the prompt with a context length."""
    turns = [usage for usage in usages if usage.prompt_tokens or usage.completion_tokens]
    if len(turns) < 2:
        return turns[0] if turns else Usage()
    details = [usage.details.get("emulator") or {} for usage in turns]
    emulator = {
        "model_turns": sum(one.get("model_turns", 1) for one in details),
        "prompt_tokens": sum(
            one.get("prompt_tokens", usage.prompt_tokens)
            for one, usage in zip(details, turns, strict=True)
        ),
    }
    completion_tokens = sum(usage.completion_tokens for usage in turns)
    return Usage(turns[-1].prompt_tokens, completion_tokens, {"emulator": emulator})
