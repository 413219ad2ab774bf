"""What came of one reply of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.events import FinishReason


@dataclass(frozen=True)
class FinalReply:
    """The turn is the answer: calls, or prose."""


@dataclass(frozen=True)
class CellResult:
    """A cell was run in the code interpreter; the model is to go on with its output."""

    output: str
    failed: bool


@dataclass(frozen=True)
class UnusableReply:
    """The turn is of no use; ``kind`` and ``facts`` say what to ask for (prompts/repair.jinja)."""

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


_ENDED = frozenset("stop tool_calls function_call eos eos_token end_turn stop_sequence".split())
"""The upstream's finish reasons that say that the model itself has ended the reply."""


def is_truncated(finish_reason: str | None) -> bool:
    """Whether something else than the model has ended the reply, so that it may not be whole.

    That is a token limit, a filter (OpenAI), a lack of resources (DeepSeek), a worker that was stopped
    (vLLM's "abort"), and also an upstream that tells no reason at all.
    """
    return finish_reason not in _ENDED


def answer_finish_reason(finish_reason: str | None) -> FinishReason:
    """The reason for an answer that is no call, in OpenAI's words."""
    if finish_reason == "content_filter":
        return "content_filter"
    return "stop" if finish_reason is None or not is_truncated(finish_reason) else "length"


Verdict = FinalReply | CellResult | UnusableReply
