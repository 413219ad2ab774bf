"""A request as a row of the list: what can be shown of it without its contents."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import TypeAdapter

from emulator.core import json_codec
from emulator.core.front_paths import front_of
from emulator.traces.trace import State, Trace

_MAX_READ, _MAX_SHOWN = 1000, 100
"""Characters of a text whose first words are shown."""
_PARTIAL_WORD = re.compile(r"[!-~]+\Z")
_MAX_CHARS = 500
"""Of a text from outside: a model's name, an error."""


@dataclass(frozen=True)
class TraceSummary:
    """Fields without a comment are those of `Trace`."""

    id: str
    path: str
    began: float
    answer_id: str = ""
    client: str = ""
    client_name: str = ""
    model: str = ""
    upstream: str = ""
    container: str = ""
    turns: int = 0
    turns_saved: int = 0
    repairs: int = 0
    call_count: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    is_estimated: bool = False
    seconds: float | None = None
    state: State = "running"
    waits: bool = False
    status: int = 0
    error: str = ""
    code: str = ""
    question: str = ""
    tools: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    """Names of the tools that were called, each once."""
    calls: tuple[str, ...] = ()
    """Ids of the calls that were sent."""
    resumed: tuple[str, ...] = ()
    """Ids of the earlier calls of the program that was resumed."""
    notes: tuple[str, ...] = ()
    """The kinds of its notes."""
    reply: str = ""
    """The first words of the model's last reply, as `Trace.question`."""
    prompt: tuple[int, ...] = ()
    """A checksum of each message of the last turn."""
    body: bytes = b""

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the tools that were offered or called."""
        return *self.tools, *self.called

    @property
    def front(self) -> str:
        """The API: chat, responses, messages or other."""
        return front_of(self.path)

    @property
    def client_label(self) -> str:
        return self.client_name or self.client[:8]

    @classmethod
    def of(cls, trace: Trace) -> TraceSummary:
        turns, calls = [*trace.turns], [*trace.calls]
        values: dict[str, Any] = {
            "turns": len(turns),
            "called": tuple(dict.fromkeys([*(call.name for call in calls), *trace.hosted])),
            "calls": tuple(call.id for call in calls),
            "resumed": tuple(call.id for call in trace.resumed.calls) if trace.resumed else (),
            "reply": first_words("".join([*turns[-1].reply])) if turns else "",
            "notes": tuple(dict.fromkeys(note.kind for note in trace.notes)),
            "prompt": checksums(turns[-1].messages) if turns else (),
        }
        for name in _FIELDS - values.keys():
            value = getattr(trace, name)
            values[name] = value[:_MAX_CHARS] if isinstance(value, str) else value
        return cls(**values)

    def to_json(self) -> bytes:
        """All fields except the body."""
        return json_codec.dumps({**vars(self), "body": ""})

    @classmethod
    def from_json(cls, text: bytes, body: bytes) -> TraceSummary:
        return replace(_SUMMARIES.validate_json(text), body=body)


_FIELDS = {field.name for field in fields(TraceSummary)}
_SUMMARIES = TypeAdapter(TraceSummary)


def first_words(text: str) -> str:
    """A key must not be cut in two, since a part of it would not be hidden; other scripts need no spaces."""
    first = " ".join(text[:_MAX_READ].split())
    if len(text) <= _MAX_READ and len(first) <= _MAX_SHOWN:
        return first
    return f"{_PARTIAL_WORD.sub('', first[:_MAX_SHOWN]).rstrip()} …".lstrip()


def checksums(messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """One for each message. Prompts that begin alike have checksums that begin alike."""
    return tuple(
        zlib.crc32(f"{message.get('role')} {message.get('content')}".encode(errors="replace"))
        for message in messages
    )
