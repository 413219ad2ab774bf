"""What an answer consists of, as it comes: events that every front (chat, responses) writes in its own shape.

Knows nothing of chunks, items or HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from emulator import json_codec

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
ToolKind = Literal["function", "custom"]
RunStatus = Literal["completed", "failed", "incomplete"]

DELTA_CHARS = 256
"""Most characters of a call's arguments in one delta: clients show them as they come."""


@dataclass(frozen=True)
class Usage:
    """Tokens as the upstream counted them, or as estimated where its reply was closed before it told."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            **self.details,
        }


@dataclass(frozen=True)
class UpstreamAccepted:
    """The upstream has accepted the request: time to begin the response, with nothing to say yet."""

    turns_saved: int = 0
    """Model turns that this answer did without."""
    container_id: str = ""
    """Of the code interpreter, if the answer has one."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the upstream's answer, those that its client is to see."""


@dataclass(frozen=True)
class RelayedChunk:
    """A chunk of the upstream's own, of an answer in which nothing is emulated.

    Its choices are the upstream's; where the upstream told its usage, the last one has that and no choice.
    """

    chunk: dict[str, Any]
    more: bool = False
    """The next one has come already, and follows at once."""


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class ContentDelta:
    text: str


@dataclass(frozen=True)
class ToolCall:
    """One whole call, bound and validated."""

    id: str
    name: str
    arguments: dict[str, Any]
    kind: ToolKind = "function"


@dataclass(frozen=True)
class CallStarted:
    """A call that is told while the model still writes it. `ArgumentsDelta` events follow, and then its
    `ToolCall`, whose arguments begin with what they said; or the answer breaks off."""

    id: str
    name: str
    kind: ToolKind = "function"


@dataclass(frozen=True)
class ArgumentsDelta:
    """More of the call's arguments as `serialize_arguments` writes them."""

    text: str


@dataclass(frozen=True)
class CodeStarted:
    """The model begins a cell for the code interpreter. Events of two cells never interleave."""

    id: str
    """``ci_...``, the same for all events of one cell."""
    container_id: str


@dataclass(frozen=True)
class CodeDelta:
    text: str


@dataclass(frozen=True)
class CodeComplete:
    """The cell is whole and is about to run; ``code`` is all of it."""

    code: str


@dataclass(frozen=True)
class Logs:
    """What a cell printed, its last value and its traceback included."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture that a cell displayed."""

    media_type: str
    """``image/png``, ``image/jpeg`` or ``image/svg+xml``."""
    data: bytes


@dataclass(frozen=True)
class CreatedFile:
    """A file that a cell wrote or changed, as the client may fetch it from the container."""

    container_id: str
    file_id: str
    path: str
    """In the container: ``/mnt/data/plot.png``."""
    bytes: int


@dataclass(frozen=True)
class CodeOutput:
    """Part of a running cell's output, as it comes."""

    output: Logs | Image


@dataclass(frozen=True)
class CodeFinished:
    """The cell has ended. ``incomplete``: it waits for the result of a call, or the reply was cut off in it.

    It may have begun in an earlier request, where it waited: then its `CodeStarted` (with another id),
    `CodeDelta` and `CodeComplete` are told again in front.
    """

    status: RunStatus
    outputs: tuple[Logs | Image, ...] = ()
    files: tuple[CreatedFile, ...] = ()


@dataclass(frozen=True)
class Finish:
    reason: FinishReason
    usage: Usage
    stop_sequence: str | None = None
    """The client's own stop string that ended the answer, if it is known."""


AnswerEvent = (
    UpstreamAccepted
    | RelayedChunk
    | ReasoningDelta
    | ContentDelta
    | ToolCall
    | CallStarted
    | ArgumentsDelta
    | CodeStarted
    | CodeDelta
    | CodeComplete
    | CodeOutput
    | CodeFinished
    | Finish
)


def serialize_arguments(arguments: Mapping[str, Any], kind: ToolKind) -> str:
    """What a client is told of a call's arguments: JSON, or the text that a custom tool takes."""
    if kind == "custom":
        return str(arguments.get("input", ""))
    return json_codec.dumps(arguments).decode()


def pieces(text: str) -> Iterator[str]:
    """``text`` in the deltas that a stream tells it in: one at least, none much longer than a line."""
    for start in range(0, max(len(text), 1), DELTA_CHARS):
        yield text[start : start + DELTA_CHARS]


class CallDeltas:
    """Has each call of an answer told as one that came while it was written: `CallStarted`, all of its
    arguments in `ArgumentsDelta` events, `ToolCall`."""

    def __init__(self) -> None:
        self._told: int | None = None
        """Characters of the arguments of the call that has begun."""

    def of(self, event: AnswerEvent) -> Sequence[AnswerEvent]:
        """``event``, the next one of the answer, behind what it lacks."""
        match event:
            case CallStarted():
                self._told = 0
            case ArgumentsDelta(text):
                self._told = (self._told or 0) + len(text)
            case ToolCall(key, name, arguments, kind):
                told, self._told = self._told, None
                begun = [CallStarted(key, name, kind)] if told is None else []
                rest = serialize_arguments(arguments, kind)[told or 0 :]
                argued = map(ArgumentsDelta, pieces(rest)) if rest or not told else ()
                return (*begun, *argued, event)
        return (event,)


def with_call_deltas(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """All events of an answer, as `CallDeltas` tells them."""
    return chain.from_iterable(map(CallDeltas().of, events))


def call_id(answer: str, place: int) -> str:
    """The id of the call at ``place`` in an answer: ids of one answer sort in the order of its calls.

    smolagents sorts parallel calls by id before it tells them to the model again.
    """
    return f"call_{answer[:20]}{place:04x}"


def from_same_answer(one: str, other: str) -> bool:
    """Whether two calls with ids of `call_id` were made in one answer."""
    stem = len("call_") + 20
    return len(one) == len(other) == stem + 4 and one[:stem] == other[:stem]


def new_id(prefix: str) -> str:
    """``chatcmpl-...`` or ``call_...``: unguessable and unique."""
    return prefix + secrets.token_hex(12)
