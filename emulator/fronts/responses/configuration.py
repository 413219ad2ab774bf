"""Settings that change during a conversation: ``configuration_update`` items.

Each setting stays in effect until a later update replaces it, also in later requests. Clients leave the
request's own setting as it is, because a new value would change the prefix of OpenAI's prompt
(https://developers.openai.com/api/docs/guides/reasoning#change-reasoning-mid-conversation). The place of an
update does not matter to the answer that follows: Codex sends it after the user's message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from emulator.core.errors import BadRequest
from emulator.core.protocol import validated
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.request import (
    ReasoningOptions,
    ResponseRequest,
    TextFormat,
    TextOptions,
)


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Reasoning(_Settings):
    effort: str | None = None


class _Text(_Settings):
    format: TextFormat


class _Update(BaseModel):
    """Clients add fields of their own to items; those are ignored, unlike settings."""

    reasoning: _Reasoning | None = None
    text: _Text | None = None


_OTHER_SETTINGS = ResponseRequest.model_fields.keys() - {*_Update.model_fields, "metadata"}


@dataclass(frozen=True)
class EffectiveSettings:
    """The settings in effect for an answer."""

    request: ResponseRequest
    format_place: str = "text.format"
    """Where the client sent the format of the text."""

    def updated(self, items: Sequence[Json], place: str) -> EffectiveSettings:
        """Apply the updates in ``items``. Raises `BadRequest` for a setting that no update can change."""
        configuration = self
        for n, item in enumerate(items):
            if item["type"] == "configuration_update":
                configuration = configuration._changed(item, f"{place}[{n}]")
        return configuration

    def _changed(self, item: Json, place: str) -> EffectiveSettings:
        if fixed := sorted(_OTHER_SETTINGS & item.keys()):
            message = (
                f"{place}.{fixed[0]} cannot be changed by a configuration_update;"
                " reasoning.effort and text.format can."
            )
            raise BadRequest(message, param=f"{place}.{fixed[0]}", code="unsupported_parameter")
        update = validated(_Update, item, place)
        request, format_place = self.request, self.format_place
        if update.reasoning is not None and "effort" in update.reasoning.model_fields_set:
            reasoning = request.reasoning or ReasoningOptions()
            changed = reasoning.model_copy(update={"effort": update.reasoning.effort})
            request = request.model_copy(update={"reasoning": changed})
        if update.text is not None:
            text = request.text or TextOptions()
            text = text.model_copy(update={"format": update.text.format})
            request = request.model_copy(update={"text": text})
            format_place = f"{place}.text.format"
        return EffectiveSettings(request, format_place)
