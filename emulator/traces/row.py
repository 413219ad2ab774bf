"""One request as a list shows it: what can be told of it without what was said in it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.traces.trace import State, Trace

_MOST_CHARS = 500
"""Of a text that somebody else has written: a model's name, an error."""


@dataclass(frozen=True)
class Row:
    """Fields are as in `Trace`, unless they say otherwise."""

    id: str
    path: str
    began: float
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
    seconds: float | None = None
    state: State = "running"
    status: int = 0
    error: str = ""
    code: str = ""
    words: tuple[str, ...] = ()
    """Names of tools, and of the calls that were sent."""
    calls: tuple[str, ...] = ()
    """Ids of the calls that were sent."""
    resumed: tuple[str, ...] = ()
    """Ids of the earlier calls of the program that was gone on with."""
    prompt: tuple[int, ...] = ()
    """Of the last turn: a checksum of each message."""
    body: bytes = b""

    @classmethod
    def of(cls, trace: Trace) -> Row:
        calls, turns = [*trace.calls], [*trace.turns]
        return cls(
            id=trace.id,
            path=trace.path[:_MOST_CHARS],
            began=trace.began,
            client=trace.client,
            client_name=trace.client_name,
            model=trace.model[:_MOST_CHARS],
            upstream=trace.upstream,
            container=trace.container,
            turns=len(turns),
            turns_saved=trace.turns_saved,
            repairs=trace.repairs,
            call_count=trace.call_count,
            tokens_in=trace.usage.prompt_tokens,
            tokens_out=trace.usage.completion_tokens,
            seconds=trace.seconds,
            state=trace.state,
            status=trace.status,
            error=trace.error[:_MOST_CHARS],
            code=trace.code[:_MOST_CHARS],
            words=(*trace.tools, *dict.fromkeys(call.name for call in calls)),
            calls=tuple(call.id for call in calls),
            resumed=tuple(call.id for call in trace.resumed.calls) if trace.resumed else (),
            prompt=checksums(turns[-1].messages) if turns else (),
            body=trace.body,
        )

    def json(self) -> dict[str, Any]:
        """All but the body."""
        return {name: value for name, value in vars(self).items() if name != "body"}

    @classmethod
    def loaded(cls, fields: Mapping[str, Any], body: bytes = b"") -> Row:
        """What `json` gave."""
        lists = {name: tuple(fields[name]) for name in ("words", "calls", "resumed", "prompt")}
        return cls(**{**fields, **lists}, body=body)


def checksums(messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """To find out which prompts begin alike."""
    return tuple(
        zlib.crc32(f"{message.get('role')} {message.get('content')}".encode(errors="replace"))
        for message in messages
    )
