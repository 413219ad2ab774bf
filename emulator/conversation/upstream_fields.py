"""Which fields of a client's request go to the model's server.

Chat is the servers' own language: what a chat client sends goes, unless the profile drops it or
``drop_fields`` names it. Responses and Messages are translated (`emulator.core.wire`): of fields that their
tables do not name only those go that ``pass_fields`` names. With client keys nobody's request changes what
the server keeps for all: `state_names` go only if ``pass_fields`` names them, from a chat, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.conversation.profiles import Profile
from emulator.core.protocol import EMULATED, ChatCompletionRequest
from emulator.core.wire import state_names, without
from emulator.settings.settings import Settings

_OWN = EMULATED | {"model", "n", "response_format", "stream_options"}
"""Fields of chat that no unlisted field can set."""


@dataclass(frozen=True)
class UpstreamFields:
    """``ignored`` are the names of the client's fields that have no effect."""

    withheld: frozenset[str]
    inside: tuple[str, ...]
    """What is withheld of objects, as `state_names` names it."""
    added: Mapping[str, Any]
    ignored: tuple[str, ...]

    @classmethod
    def of(
        cls, chat: ChatCompletionRequest, profile: Profile, settings: Settings
    ) -> UpstreamFields:
        named = {*settings.pass_fields, *profile.passes}
        withheld = profile.withholds(settings.drop_fields)
        unlisted = {n: value for n, value in chat.unlisted.items() if n not in _OWN}
        if "*" not in named:
            unlisted = {name: value for name, value in unlisted.items() if name in named}
        extra = chat.model_extra or {}
        state = state_names({**unlisted, **extra}, named) if settings.wants_keys else []
        inside = tuple(name for name in state if "." in name)
        withheld |= {name for name in state if "." not in name}
        added = {name: value for name, value in unlisted.items() if name not in withheld}
        ignored = [
            *chat.ignored,
            *(name for name in chat.unlisted if name not in added),
            *(name for name, value in extra.items() if name in withheld and value is not None),
            *inside,
        ]
        return cls(withheld, inside, added, tuple(dict.fromkeys(ignored)))

    def sent(self, fields: Mapping[str, Any], left_out: Collection[str] = ()) -> dict[str, Any]:
        """The fields of the upstream's request: those of ``fields``, the chat's own, that go."""
        sent = {
            name: value
            for name, value in fields.items()
            if name not in self.withheld and name not in left_out
        }
        sent |= {name: value for name, value in self.added.items() if name not in sent}
        return without(sent, self.inside) if self.inside else sent
