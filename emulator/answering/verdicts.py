"""What came of one reply of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.events import FinishReason


@dataclass(frozen=True)
class Answered:
    """The turn is the answer: calls, or prose."""


@dataclass(frozen=True)
class Ran:
    """A cell was run in the code interpreter; the model is to go on with its output."""

    output: str
    failed: bool


@dataclass(frozen=True)
class Refused:
    """The turn is of no use; ``kind`` and ``facts`` say what to ask for (prompts/repair.jinja)."""

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


CUT_OFF: Mapping[str | None, FinishReason] = {
    "length": "length",
    "content_filter": "content_filter",
}
"""The upstream's finish reasons that say that the reply is not whole."""

Verdict = Answered | Ran | Refused
