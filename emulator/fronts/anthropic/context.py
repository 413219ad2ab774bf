"""``context_management`` -> the rules for a long conversation, and the report of what they did.

Types and defaults as of anthropic 2.14, anthropic.types.beta.beta_context_management_config_param.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from emulator.conversation.context import (
    AppliedEdit,
    ClearReasoning,
    ClearResults,
    ContextRules,
    Summarize,
)
from emulator.core.protocol import Lenient

_COMPACT_TOKENS = 150_000


class Tokens(Lenient):
    type: Literal["input_tokens"]
    value: int = Field(ge=0)


class ToolUses(Lenient):
    type: Literal["tool_uses"]
    value: int = Field(ge=0)


class ThinkingTurns(Lenient):
    type: Literal["thinking_turns"]
    value: int = Field(ge=0)


class AllTurns(Lenient):
    type: Literal["all"]


class ClearToolUses(Lenient):
    type: Literal["clear_tool_uses_20250919"]
    trigger: Annotated[Tokens | ToolUses, Field(discriminator="type")] | None = None
    keep: ToolUses | None = None
    clear_at_least: Tokens | None = None
    exclude_tools: list[str] | None = None
    clear_tool_inputs: bool | list[str] | None = None

    @property
    def rule(self) -> ClearResults:
        trigger, inputs = self.trigger, self.clear_tool_inputs or False
        return ClearResults(
            tokens=trigger.value if isinstance(trigger, Tokens) else None,
            uses=trigger.value if isinstance(trigger, ToolUses) else None,
            latest=ClearResults.latest if self.keep is None else self.keep.value,
            at_least=self.clear_at_least.value if self.clear_at_least else 0,
            excluded=frozenset(self.exclude_tools or ()),
            inputs=inputs if isinstance(inputs, bool) else frozenset(inputs),
        )


class ClearThinking(Lenient):
    type: Literal["clear_thinking_20251015"]
    keep: ThinkingTurns | AllTurns | Literal["all"] | None = None

    @property
    def rule(self) -> ClearReasoning:
        if isinstance(self.keep, ThinkingTurns):
            return ClearReasoning(self.keep.value)
        return ClearReasoning() if self.keep is None else ClearReasoning(None)


class Compact(Lenient):
    type: Literal["compact_20260112"]
    trigger: Tokens | None = None
    instructions: str | None = None
    pause_after_compaction: bool = False

    @property
    def rule(self) -> Summarize:
        threshold = self.trigger.value if self.trigger else None
        pauses = self.pause_after_compaction
        return Summarize(threshold, _COMPACT_TOKENS, self.instructions or "", pauses)


class ContextManagement(Lenient):
    edits: list[Annotated[ClearToolUses | ClearThinking | Compact, Field(discriminator="type")]] = (
        Field(default_factory=list)
    )

    @property
    def rules(self) -> ContextRules:
        rules = [edit.rule for edit in self.edits]
        edits = [one for one in rules if not isinstance(one, Summarize)]
        summaries = (one for one in rules if isinstance(one, Summarize))
        return ContextRules(edits, next(summaries, None))


def report(applied: Sequence[AppliedEdit]) -> dict[str, Any]:
    """What a message says of the edits."""
    return {"applied_edits": [_applied(one) for one in applied]}


def _applied(edit: AppliedEdit) -> dict[str, Any]:
    kind, count = "clear_tool_uses_20250919", "cleared_tool_uses"
    if isinstance(edit.rule, ClearReasoning):
        kind, count = "clear_thinking_20251015", "cleared_thinking_turns"
    return {"type": kind, "cleared_input_tokens": edit.tokens, count: edit.count}
