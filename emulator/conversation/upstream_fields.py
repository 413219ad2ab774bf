"""Which fields of a client's request go to the model's server.

Chat is the servers' own language: what a chat client sends goes, unless the profile drops it or
``drop_fields`` names it. Responses and Messages are translated (`emulator.core.wire`): of fields that their
tables do not name only those go that ``pass_fields`` names. With client keys nobody's request changes what
the server keeps for all: `STATE_FIELDS` go only if ``pass_fields`` names them, from a chat, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.conversation.profiles import Profile
from emulator.core.protocol import EMULATED, ChatCompletionRequest
from emulator.core.wire import STATE_FIELDS, STATE_OPTIONS
from emulator.settings.settings import Settings

_OWN = EMULATED | {"model", "n", "response_format", "stream_options"}
"""Fields of chat that no unlisted field can set."""


@dataclass(frozen=True)
class UpstreamFields:
    """``ignored`` are the names of the client's fields that have no effect."""

    withheld: frozenset[str]
    added: Mapping[str, Any]
    options: Mapping[str, Any] | None
    """What is left of ``options`` if some of it is withheld."""
    ignored: tuple[str, ...]

    @classmethod
    def of(
        cls, chat: ChatCompletionRequest, profile: Profile, settings: Settings
    ) -> UpstreamFields:
        named = {*settings.pass_fields, *profile.passes}
        withheld = profile.withholds(settings.drop_fields)
        state = STATE_FIELDS - named if settings.wants_keys else frozenset()
        extra = chat.model_extra or {}
        unlisted = {n: value for n, value in chat.unlisted.items() if n not in _OWN}
        if "*" not in named:
            unlisted = {name: value for name, value in unlisted.items() if name in named}
        added = {n: value for n, value in unlisted.items() if n not in withheld | state}
        found = extra.get("options", added.get("options"))
        options: dict[str, Any] = found if isinstance(found, dict) else {}
        dropped: list[str] = []
        if settings.wants_keys:
            dropped = [n for n in options if n in STATE_OPTIONS and f"options.{n}" not in named]
        ignored = [
            *chat.ignored,
            *(name for name in chat.unlisted if name not in added),
            *(
                name
                for name, value in extra.items()
                if name in withheld | state and value is not None
            ),
            *(f"options.{name}" for name in dropped),
        ]
        return cls(
            frozenset(withheld | state),
            added,
            {n: v for n, v in options.items() if n not in dropped} if dropped else None,
            tuple(dict.fromkeys(ignored)),
        )

    def sent(self, fields: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
        """The fields of the upstream's request: those of ``fields``, the chat's own, that go."""
        sent = {
            name: value
            for name, value in fields.items()
            if name not in self.withheld and name not in without
        }
        sent |= {name: value for name, value in self.added.items() if name not in sent}
        return sent if self.options is None else sent | {"options": self.options}
