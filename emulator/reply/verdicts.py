"""The verdict on one reply of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.core.events import FinishReason


@dataclass(frozen=True)
class FinalReply:
    """The reply ends the answer: it has calls or prose."""


@dataclass(frozen=True)
class CellResult:
    """The code interpreter ran a cell; the model continues with its output."""

    output: str
    failed: bool


Fault = Literal["invalid", "required", "empty", "output", "cut", "asked", "format"]
"""Invalid code, no call although one is required, no answer, code that calls nothing, a truncated block, a
block about which the model is asked (`question`), another form than ``response_format``."""


@dataclass(frozen=True)
class UnusableReply:
    """The reply cannot be the answer; ``kind`` and ``facts`` choose the repair prompt
    (prompts/repair.jinja)."""

    kind: Fault
    facts: Mapping[str, Any] = field(default_factory=dict)


Verdict = FinalReply | CellResult | UnusableReply

_ENDED_BY_MODEL = frozenset(
    "stop tool_calls function_call eos eos_token end_turn stop_sequence".split()
)


def is_truncated(finish_reason: str | None) -> bool:
    """Return True unless the upstream says that the model itself ended the reply.

    Other causes are a token limit, a filter (OpenAI), a lack of resources (DeepSeek), a stopped worker
    (vLLM's "abort"). An upstream that reports no reason counts as truncated too.
    """
    return finish_reason not in _ENDED_BY_MODEL


def answer_finish_reason(finish_reason: str | None) -> FinishReason:
    """The finish reason of an answer without calls, in OpenAI's terms."""
    if finish_reason == "content_filter":
        return "content_filter"
    return "stop" if finish_reason is None or not is_truncated(finish_reason) else "length"
