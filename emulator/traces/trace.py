"""The record of one request, and access to the record of the current one.

A `Trace` runs until `Trace.end`, which works once and sets its `State`. One thread writes it, others may read
it at any time: fields change from their default to their value, and lists only grow.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.core import json_codec
from emulator.core.errors import ClientDisconnected
from emulator.core.events import CodeFinished, ToolCall
from emulator.traces.notes import EXPLAINS_NO_CALL, MAX_NOTES, Note, NoteKind

State = Literal["running", "answered", "called", "failed", "left"]
"""``called``: the answer consists of calls; ``left``: the client disconnected first."""
Mode = Literal["", "emulated", "native", "relayed", "passed"]
"""``emulated``: this proxy turns text into calls; ``native``: the upstream makes calls; ``relayed``:
no tools; ``passed``: not a request for an answer, passed on unchanged; "": not known yet."""

MAX_WIRE_BYTES = 2**20
"""The limit for the raw events of one turn, and for those of the response."""
MAX_SENT_BYTES = 8 * 2**20
"""The limit for the bodies that all turns of a request sent: a hosted loop sends a growing one many times."""
MAX_BLOCKS = 200
MAX_TIMES = 200

_ID = re.compile(rb'"id": ?"([^"\\]{1,100})"')
_ENDING = threading.Lock()


@dataclass
class WireLog:
    """Raw bytes as they were received or sent, with their times. Beyond the limit bytes are only counted."""

    events: list[tuple[float, bytes]] = field(default_factory=list)
    size: int = 0
    omitted_bytes: int = 0

    def add(self, at: float, data: bytes) -> None:
        size = len(data)
        if self.size + size > MAX_WIRE_BYTES:
            self.omitted_bytes += size
            return
        self.size += size
        self.events.append((at, data))


@dataclass(frozen=True)
class RecordedBlock:
    """A part of a reply that one reader parsed."""

    dialect: str
    """The name of the reader."""
    source: str
    """The text in the reply, with its fence or tags."""
    statements: tuple[tuple[int, str], ...] = ()
    """The parsed statements: line in the block (1-based), Python."""
    problem: str = ""
    """Why it could not be parsed."""
    quoted: bool = False
    """It quotes a text that the model did not write, so its calls are not made."""


@dataclass(frozen=True)
class RecordedCall:
    """A call of an earlier turn, in the replay of its program. ``result`` counts only if ``known``."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    known: bool = False


@dataclass(frozen=True)
class ResumedProgram:
    """A suspended program whose results came with this request."""

    source: str
    calls: tuple[RecordedCall, ...]
    lines: tuple[int, ...] = ()
    """Line in ``source`` of each of ``calls``, then of each new call; empty if the run was rejected."""
    outcome: str = ""
    """``waits`` (new calls were sent), ``ended``, ``failed`` or ``dropped``."""
    output: str = ""


@dataclass(eq=False)
class Turn:
    """One request to an upstream, and the outcome of the model's reply. Times are as in `Trace`."""

    upstream: str
    messages: Sequence[Mapping[str, Any]]
    fields: Mapping[str, Any]
    """The request's other fields, ``model`` among them."""
    began: float
    operation: str = "chat"
    """For a passed-on request: the path below the upstream's base URL."""
    opened: float | None = None
    """When the upstream accepted the request."""
    first_output: float | None = None
    """When the first piece of the answer arrived."""
    ended: float | None = None
    sent: bytes = b""
    """The body that was sent; empty until then, above `MAX_SENT_BYTES`, and for a passed-on request."""
    reply: Sequence[str] = ()
    """The pieces as they arrived; empty if nothing was emulated: see ``wire``."""
    reasoning: Sequence[str] = ()
    blocks: list[RecordedBlock] = field(default_factory=list)
    program: str = ""
    """The program of all blocks together."""
    lines: dict[str, int] = field(default_factory=dict)
    """Id of a call -> its line in ``program``."""
    cell: str = ""
    """Code for the interpreter."""
    verdict: str = ""
    """``answered``, ``ran`` (a cell), or why the reply was unusable: ``invalid``, ``required``, ..."""
    diagnostics: str = ""
    finish_reason: str | None = None
    """The upstream's; None if the connection ended before it was sent."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As reported by the upstream, else estimated. Set when the turn ends."""
    is_estimated: bool = False
    cached_tokens: int = 0
    """The part of ``prompt_tokens`` that the upstream read from its cache."""
    reasoning_tokens: int = 0
    """The part of ``completion_tokens`` that was reasoning."""
    error: str = ""
    wire: WireLog = field(default_factory=WireLog)

    @property
    def request(self) -> bytes:
        """The body that was sent, or an equal one."""
        return self.sent or json_codec.dumps({**self.fields, "messages": self.messages})

    @property
    def is_unusable(self) -> bool:
        """Return True if the reply was rejected and the model was asked again."""
        return self.verdict not in ("", "answered", "ran")

    def add_block(self, block: RecordedBlock) -> None:
        if len(self.blocks) < MAX_BLOCKS:
            self.blocks.append(block)


@dataclass(eq=False)
class Trace:
    """One request."""

    id: str
    """The ``x-request-id`` of its response."""
    method: str
    path: str
    client: str = ""
    """The client's id; "" for all clients if there are no keys."""
    body: bytes = b""
    began: float = field(default_factory=time.time)
    """Unix time; all other times are seconds since then."""
    route: str = ""
    """The routing rule that ``path`` matches; a label with few values."""
    client_name: str = ""
    """The operator's name of the client."""
    propagated: dict[str, str] = field(default_factory=dict)
    """Headers that are added to each request to an upstream."""
    records_wire: bool = True
    """Whether raw bytes are recorded."""
    background: bool = False
    """The answer is made after the response was sent."""
    _zero: float = field(default_factory=time.perf_counter)

    model: str = ""
    """The model's name, as the client wrote it."""
    question: str = ""
    """The first words of the user's last message: whole words, so that a key in it can be hidden."""
    has_results: bool = False
    """The last messages are results of calls, which the answer may simply report."""
    upstream: str = ""
    profile: str = ""
    mode: Mode = ""
    streamed: bool = False
    stubs: Callable[[], str] = str
    """Returns the offered tools as the model saw them."""
    tools: tuple[str, ...] = ()
    deferred: int = 0
    """How many of them the prompt only lists."""
    removed: tuple[str, ...] = ()
    """The types of the tools that cannot run here."""
    offers_tools: bool = False
    """The client offers tools of its own."""
    unavailable_servers: tuple[str, ...] = ()
    """The MCP servers of the settings whose tools are missing, because they could not be listed."""
    container: str = ""

    turns: list[Turn] = field(default_factory=list)
    resumed: ResumedProgram | None = None
    turns_saved: int = 0
    calls: list[ToolCall] = field(default_factory=list)
    """The calls that were sent to the client, or for its approval."""
    waits: bool = False
    """A cell or a call waits for a person's approval."""
    call_count: int = 0
    """The number of all calls that were made, including an upstream's own and those of hosted tools."""
    hosted: list[str] = field(default_factory=list)
    """Names of the hosted tools that were called."""
    cell: str = ""
    """Code that the client sent to a container itself."""
    cells: list[CodeFinished] = field(default_factory=list)
    first_output: float | None = None
    """When the first text, reasoning or call was sent to the client."""
    first_call: float | None = None
    """When the first call was sent."""
    times: list[tuple[str, float, float]] = field(default_factory=list)
    """Other steps that took time: name, begin, end."""
    notes: list[Note] = field(default_factory=list)
    finish_reason: str = ""
    error: str = ""
    code: str = ""
    """The error's code."""
    status: int = 0
    wire: WireLog = field(default_factory=WireLog)
    is_complete: bool = False
    """The whole response was produced before its client disconnected."""
    seconds: float | None = None
    """The duration; None while the request runs."""
    state: State = "running"
    stripped: bool = False
    """It was too large to store: its contents were removed."""

    def now(self) -> float:
        return time.perf_counter() - self._zero

    @property
    def _has_outcome(self) -> bool:
        """True if a client that disconnects now misses nothing."""
        return bool(self.is_complete or self.error or self.finish_reason)

    @property
    def repairs(self) -> int:
        """How often the model was asked again because of an unusable reply."""
        return sum(turn.is_unusable for turn in self.turns[:-1])

    @property
    def answer_id(self) -> str:
        """The id in the response, such as ``chatcmpl-...``: the client has it."""
        found = _ID.search(b"".join(data[:500] for _, data in self.wire.events[:2]))
        return found[1].decode(errors="replace") if found else ""

    @property
    def tokens_in(self) -> int:
        """Tokens of the prompts of all turns."""
        return sum(turn.prompt_tokens for turn in self.turns)

    @property
    def tokens_out(self) -> int:
        return sum(turn.completion_tokens for turn in self.turns)

    @property
    def is_estimated(self) -> bool:
        """Return True if a turn's tokens were estimated: the upstream reported none, or was closed first."""
        return any(turn.is_estimated for turn in self.turns)

    @property
    def raw_bytes(self) -> int:
        """Most of the trace's size."""
        turns = sum(len(turn.sent) + turn.wire.size for turn in self.turns)
        return len(self.body) + self.wire.size + turns

    def begin_turn(
        self, upstream: str, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Turn:
        """Record a request to an upstream. ``messages`` may grow afterwards; the recorded copy does not."""
        turn = Turn(upstream, tuple(messages), fields, self.now())
        self.turns.append(turn)
        return turn

    def set_error(self, message: str, code: str | None = None) -> None:
        self.error, self.code = message, code or ""

    def add_note(self, kind: NoteKind, words: str, way_out: str = "") -> None:
        """Add a note, once."""
        note = Note.of(kind, words, way_out)
        if note not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(note)

    @property
    def has_acted(self) -> bool:
        """Return True if the answer has a call, runs code, or continues a program."""
        ran = any(cell.status != "incomplete" for cell in self.cells)
        return bool(self.call_count or ran or self.resumed)

    @property
    def why_no_call(self) -> list[Note]:
        """The notes that say why the answer has no call."""
        if self.has_acted:
            return []
        return [note for note in self.notes if note.kind in EXPLAINS_NO_CALL]

    def record_response(self, data: bytes) -> None:
        """Record bytes that are sent to the client."""
        if self.records_wire:
            self.wire.add(time.perf_counter() - self._zero, data)

    def end(self, *, disconnected: bool = False) -> bool:
        """End the record when the response was sent or its client disconnected.

        Returns False if it had ended already.
        """
        with _ENDING:
            if self.seconds is not None:
                return False
            if self.status == ClientDisconnected.status or (disconnected and not self._has_outcome):
                self.state = "left"
                if self.tools and not self.has_acted:
                    self.add_note(
                        "client-left",
                        "The client disconnected before the model called.",
                        "if it timed out, let it wait longer",
                    )
            elif self.error or self.status >= 400:
                self.state = "failed"
            else:
                self.state = "called" if self.calls else "answered"
            self.seconds = self.now()
        return True


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the current request; None if nothing is recorded."""


def propagated_headers() -> Mapping[str, str]:
    """Return the headers of the current request that are added to each request to an upstream."""
    trace = current.get()
    return {} if trace is None else trace.propagated


def current_turn() -> Turn | None:
    """The last turn of the current request."""
    trace = current.get()
    return trace.turns[-1] if trace is not None and trace.turns else None


def record_sent(body: bytes) -> None:
    """Record the body of the current turn's request."""
    trace = current.get()
    turns = trace.turns if trace is not None and trace.records_wire else []
    if turns and sum(len(turn.sent) for turn in turns) + len(body) <= MAX_SENT_BYTES:
        turns[-1].sent = body


def event_recorder() -> Callable[[Sequence[bytes]], None] | None:
    """Return a function that records raw events of the current turn, one call for those that arrive together.

    Returns None if raw bytes are not recorded.
    """
    trace = current.get()
    if trace is None or not trace.records_wire or not trace.turns:
        return None
    add, now = trace.turns[-1].wire.add, trace.now

    def record(events: Sequence[bytes]) -> None:
        add(now(), b"\n\n".join(events))

    return record


def note(kind: NoteKind, words: str, way_out: str = "") -> None:
    """Add a note to the current request's trace."""
    if (trace := current.get()) is not None:
        trace.add_note(kind, words, way_out)


@contextmanager
def record_time(name: str) -> Iterator[None]:
    """Record how long the block takes."""
    trace = current.get()
    began = 0.0 if trace is None else trace.now()
    try:
        yield
    finally:
        record_span(name, began)


def record_span(name: str, began: float) -> None:
    """Record a step that ends now and began at ``began``, in the time of the current request's trace."""
    trace = current.get()
    if trace is not None and len(trace.times) < MAX_TIMES:
        trace.times.append((name, began, trace.now()))


@contextmanager
def waiting() -> Iterator[None]:
    """Record that the current request waits for a person's approval during the block."""
    trace = current.get()
    if trace is None:
        yield
        return
    trace.waits = True
    try:
        yield
    finally:
        trace.waits = False


@contextmanager
def without_trace() -> Iterator[None]:
    """Do not record the block as part of the current request."""
    token = current.set(None)
    try:
        yield
    finally:
        current.reset(token)
