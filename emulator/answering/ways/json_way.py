"""One JSON object of words or calls.

    {"say": "It is warm."}
    {"calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}

A schema may allow less than the tools do, and servers ignore some of its keywords: `Toolset.bind` validates
every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.answering.ways.json_reply import ConstrainedSplitter, write_reply
from emulator.answering.ways.way import Prompt, PromptInputs, Way
from emulator.conversation.profiles import Profile
from emulator.reading.reply_splitter import ReplySplitter
from emulator.rendering.prompt import repair_messages, tools_instructions
from emulator.rendering.transcript import ModelMessage, WriteMessage
from emulator.reply.draft_block import DraftBlock
from emulator.tools.toolset import Toolset


@dataclass(frozen=True)
class JsonWay(Way):
    any_call_acts: bool = True
    constraint: Mapping[str, Any] | None = None
    """The field with which the upstream constrains the reply to a schema."""

    def prompt(self, inputs: PromptInputs, fields: dict[str, Any]) -> Prompt:
        return super().prompt(inputs, {**fields, **(self.constraint or {})})

    def instructions(
        self, toolset: Toolset, profile: Profile, listing: str, **values: str | bool
    ) -> str:
        if profile.template:
            return super().instructions(toolset, profile, listing, **values)
        return tools_instructions("constrained.jinja", **values)

    @property
    def message(self) -> WriteMessage:
        return write_reply

    def splitter(self, splitter: ReplySplitter) -> ConstrainedSplitter:
        return ConstrainedSplitter(splitter)

    def shown(self, block: DraftBlock) -> str:
        """A call in JSON is for no reader."""
        return block.as_python

    def repair(self, reply: str, **facts: Any) -> list[ModelMessage]:
        return repair_messages(reply, constrained=True, **facts)


JSON = JsonWay()
