"""The events of one answer, in order. Each front (chat, responses, messages) writes them in its wire format.

An answer is: `UpstreamAccepted`, then deltas, calls and cells, then `Finish`; or an exception at any point.
Knows nothing of chunks, items or HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from emulator.core import json_codec

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
ToolKind = Literal["function", "custom"]
HostedKind = Literal[
    "mcp", "web_search", "web_fetch", "file_search", "image_generation", "shell", "tool_search"
]
HostedError = Literal[
    "",
    "max_uses_exceeded",
    "query_too_long",
    "too_many_requests",
    "url_not_allowed",
    "url_not_in_prior_context",
    "url_too_long",
]
"""Why a call of a vendor's type failed, in Anthropic's words; "" for any other reason."""
RunStatus = Literal["completed", "failed", "incomplete"]

IMAGE = "[an image]"
"""Where an image is, for what has only text."""
DELTA_CHARS = 256
"""The maximum number of characters of arguments in one delta; clients show arguments as they arrive."""


@dataclass(frozen=True)
class Usage:
    """Tokens as the upstream counted them, or an estimate if its reply was closed before it reported them."""

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
    """The upstream accepted the request, so the response can start. There is no content yet."""

    turns_saved: int = 0
    """The number of model turns that a resumed program avoided."""
    container_id: str = ""
    """The code interpreter's container, if the answer has one."""
    container_expires_at: int = 0
    """Unix time."""
    ignored: tuple[str, ...] = ()
    """The names of fields that this way of answering does not send."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The upstream's response headers that are passed on to the client."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Those that a reply without emulation answers."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Those that were sent with them."""


@dataclass(frozen=True)
class RelayedChunk:
    """A chunk that the upstream sent, unchanged, in an answer without emulation.

    If the upstream reported usage, the last chunk holds it and has no choice.
    """

    chunk: dict[str, Any]
    more: bool = False
    """True if the next chunk has already arrived and follows immediately."""
    call: ToolCall | None = None
    """The call that the chunk completes. Words that came before a call are sent before it."""


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class ContentDelta:
    text: str
    logprobs: Sequence[dict[str, Any]] = ()
    """Of its tokens, in Chat's shape: only what is passed on has them."""


@dataclass(frozen=True)
class RefusalDelta:
    """The model refuses to answer, in a field of its own."""

    text: str


@dataclass(frozen=True)
class PageCited:
    """The model's server says which page the answer's words, from ``start`` to ``end``, come from."""

    url: str
    title: str
    quote: str = ""
    """What the page says."""
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class ModelImage:
    """An image that the model itself made."""

    url: str
    """A data: URL, or where the model's server keeps it."""

    @property
    def words(self) -> str:
        """For an API, or a place in it, that has only text."""
        return IMAGE if self.url.startswith("data:") else f"{IMAGE}({self.url})"


ReplyExtra = RefusalDelta | PageCited | ModelImage
"""What a model's server sends in fields of their own."""


@dataclass(frozen=True)
class ToolCall:
    """One complete call, with its arguments bound and validated."""

    id: str
    name: str
    arguments: dict[str, Any]
    kind: ToolKind = "function"
    caller: str = ""


@dataclass(frozen=True)
class CallStarted:
    """The first event of a call as a stream has it (`with_call_deltas`): `ArgumentsDelta` events follow, then
    the `ToolCall`."""

    id: str
    name: str
    kind: ToolKind = "function"
    caller: str = ""


@dataclass(frozen=True)
class ArgumentsDelta:
    """The next part of the call's arguments, as `serialize_arguments` writes them."""

    text: str


@dataclass(frozen=True)
class ProgramStarted:
    """A program of the model, before its first call, for a client that sees programs."""

    id: str
    """Its calls have it as ``caller``, in later answers too."""
    code: str
    fingerprint: str
    """With it the client's history is enough to continue the program."""


@dataclass(frozen=True)
class ProgramFinished:
    """A program that this or an earlier answer started has ended."""

    id: str
    output: str
    """What it printed, then the error if it failed."""
    failed: bool = False
    """It failed, was dropped, or ended at a call that only the model itself may make."""


@dataclass(frozen=True)
class CodeStarted:
    """The model starts a cell for the code interpreter. Events of two cells never interleave."""

    id: str
    """``ci_...``; identifies the cell."""
    container_id: str
    resumes: str = ""
    """Of a cell that waited for the results of calls in earlier requests: its id in the first one."""


@dataclass(frozen=True)
class CodeDelta:
    text: str


@dataclass(frozen=True)
class CodeComplete:
    """The cell is complete and is about to run; ``code`` is its source."""

    code: str


@dataclass(frozen=True)
class Logs:
    """The text output of a cell: printed text, the last value, and the traceback."""

    text: str


@dataclass(frozen=True)
class Image:
    """An image that a cell displayed."""

    media_type: str
    """``image/png``, ``image/jpeg`` or ``image/svg+xml``."""
    data: bytes


@dataclass(frozen=True)
class CreatedFile:
    """A file that a cell wrote or changed. The client can download it from the container."""

    container_id: str
    file_id: str
    path: str
    """The path in the container, such as ``/mnt/data/plot.png``."""
    bytes: int


@dataclass(frozen=True)
class CodeOutput:
    """One output of a running cell."""

    output: Logs | Image


@dataclass(frozen=True)
class CodeFinished:
    """The cell has ended. ``incomplete``: it ``waits`` for the results of its calls, or it did not run: the
    reply was truncated in it, the model is asked about it, or another request runs it.

    A cell that was suspended in an earlier request starts again in this one: `CodeStarted` (with a new id,
    and ``resumes``), `CodeDelta` and `CodeComplete` precede this event.
    """

    status: RunStatus
    outputs: tuple[Logs | Image, ...] = ()
    files: tuple[CreatedFile, ...] = ()
    text: str = ""
    """What the model sees of a cell that did not wait."""
    waits: bool = False


@dataclass(frozen=True)
class ToolsListed:
    """A server was asked for its tools, before the model's first reply."""

    id: str
    """``mcpl_...``"""
    server: str
    tools: tuple[Mapping[str, Any], ...]
    """``name``, ``description``, ``input_schema`` and ``annotations`` of each."""
    error: str | None = None


@dataclass(frozen=True)
class HostedCallStarted:
    """The proxy runs a call itself. Several may run at the same time: each is followed by its
    `HostedCallFinished`, perhaps after other events."""

    id: str
    """The call's id in the history (`call_id`)."""
    kind: HostedKind
    server: str
    """The label of the tool's server; "" if it has none."""
    name: str
    """The tool's name at its server."""
    arguments: dict[str, Any]
    approval_id: str | None = None
    """The `ApprovalRequested` that the client answered, if the call waited for one."""
    container_id: str = ""
    """The container in which the call runs, if it does."""
    caller: str = ""
    """The id of the program that calls."""


@dataclass(frozen=True)
class HostedCallFinished:
    """The result of a call that the proxy ran."""

    id: str
    content: str | list[dict[str, Any]]
    """As the content of a ``tool`` message: text, or parts."""
    is_error: bool = False
    found: tuple[str, ...] = ()
    """The names of the tools that a search found."""
    image: str = ""
    """An image that the client gets, as a data: URL; the model reads the content."""
    error_code: HostedError = ""


@dataclass(frozen=True)
class ApprovalRequested:
    """A hosted call waits for the client's decision; the answer ends after the last one. The next request
    brings the decision as a ``tool`` message with ``approval``."""

    id: str
    """The call's id in the history."""
    server: str
    name: str
    arguments: dict[str, Any]
    caller: str = ""
    """The id of the program that calls."""


@dataclass(frozen=True)
class Summary:
    """The model's summary of the conversation, which replaces it. An answer to the rest may follow."""

    text: str
    usage: Usage = Usage()
    """What the summary cost, if an answer follows."""


@dataclass(frozen=True)
class ModelViewReport:
    """What the model saw of the answer, or of the cell, that ends: for the history, not for the client."""

    view: Any
    """A `history.ModelView`."""
    of_cell: bool = False
    last: bool = False
    """The model reads that it was the answer's last cell."""


@dataclass(frozen=True)
class Finish:
    reason: FinishReason
    usage: Usage
    stop_sequence: str | None = None
    """The client's stop string that ended the answer, if known."""


AnswerEvent = (
    UpstreamAccepted
    | RelayedChunk
    | ReasoningDelta
    | ContentDelta
    | ReplyExtra
    | ToolCall
    | CallStarted
    | ArgumentsDelta
    | ProgramStarted
    | ProgramFinished
    | CodeStarted
    | CodeDelta
    | CodeComplete
    | CodeOutput
    | CodeFinished
    | ToolsListed
    | HostedCallStarted
    | HostedCallFinished
    | ApprovalRequested
    | Summary
    | ModelViewReport
    | Finish
)


def serialize_arguments(arguments: Mapping[str, Any], kind: ToolKind) -> str:
    """Return a call's arguments as the client receives them: JSON, or the text input of a custom tool."""
    if kind == "custom":
        return str(arguments.get("input", ""))
    return json_codec.dumps(arguments).decode()


def pieces(text: str) -> Iterator[str]:
    """Split ``text`` into the deltas of a stream: at least one, each at most `DELTA_CHARS` long."""
    for start in range(0, max(len(text), 1), DELTA_CHARS):
        yield text[start : start + DELTA_CHARS]


def call_deltas(event: AnswerEvent) -> Sequence[AnswerEvent]:
    """Return ``event``; before a call its `CallStarted` and its arguments in `ArgumentsDelta` events."""
    match event:
        case ToolCall(key, name, arguments, kind, caller):
            deltas = map(ArgumentsDelta, pieces(serialize_arguments(arguments, kind)))
            return (CallStarted(key, name, kind, caller), *deltas, event)
    return (event,)


def with_call_deltas(events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
    """Return all events of an answer, each with its `call_deltas`."""
    return chain.from_iterable(map(call_deltas, events))


def call_id(answer: str, place: int) -> str:
    """Return the id of the call at index ``place``. The ids of one answer sort in the order of its calls.

    smolagents sorts parallel calls by id before it sends them back to the model.
    """
    return f"call_{answer[:20]}{place:04x}"


def from_same_answer(one: str, other: str) -> bool:
    """Return True if two ids made by `call_id` belong to the same answer."""
    stem = len("call_") + 20
    return len(one) == len(other) == stem + 4 and one[:stem] == other[:stem]


def cell_call_id(cell: str, place: int) -> str:
    """Return the id of the call at index ``place`` of those that a cell makes. ``cell`` is the cell's id
    without its prefix."""
    return f"call_{cell}{place:04x}"


def calling_cell(call: str) -> str:
    """Return the cell that makes a call with this id, if a cell does."""
    return call.removeprefix("call_")[:-4]


def program_id(first_call: str) -> str:
    """Return the id of a program, by that of its first call."""
    return f"prog_{first_call.removeprefix('call_')}"


def new_id(prefix: str) -> str:
    """Return a unique, unguessable id that starts with ``prefix``, such as ``chatcmpl-``."""
    return prefix + secrets.token_hex(12)
