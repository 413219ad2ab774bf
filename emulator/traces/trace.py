"""One request as it was recorded, and where the rooms above find the one that they serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.errors import ClientDisconnected
from emulator.events import ToolCall, Usage

State = Literal["running", "answered", "called", "failed", "left"]
"""``called``: the answer is calls; ``left``: the client did not wait for its end."""
Mode = Literal["", "emulated", "native", "relayed", "passed"]
"""Who made the calls: this proxy, the upstream, or nobody, since there was nothing to emulate; ``passed``: it
was no request for an answer, and passed on as it was."""

MOST_WIRE_BYTES = 2**20
"""Of the raw events of one turn, and of the response."""
MOST_BLOCKS = 200
MOST_TIMES = 200

_ENDING = threading.Lock()


@dataclass
class Wire:
    """Raw bytes as they came or left, each with its time; what is beyond the bound is only counted."""

    events: list[tuple[float, bytes]] = field(default_factory=list)
    size: int = 0
    left_out: int = 0

    def add(self, at: float, data: bytes) -> None:
        size = len(data)
        if self.size + size > MOST_WIRE_BYTES:
            self.left_out += size
            return
        self.size += size
        self.events.append((at, data))


@dataclass(frozen=True)
class Block:
    """A stretch of a reply that one reader read."""

    dialect: str
    """Which reader."""
    written: str
    """As it stands in the reply, with its fence or tags."""
    statements: tuple[tuple[int, str], ...] = ()
    """What it was read as: line in the block (1-based), Python."""
    problem: str = ""
    """Why it could not be read."""
    quoted: bool = False
    """It repeats what somebody else had written, and so calls nothing."""


@dataclass(frozen=True)
class RecordedCall:
    """A call of an earlier turn, as its program was run again; ``result`` is None while it is unknown."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    known: bool = False


@dataclass(frozen=True)
class Resumed:
    """A program that was waiting for the results that this request brought."""

    source: str
    calls: tuple[RecordedCall, ...]
    lines: tuple[int, ...] = ()
    """Of ``source``, for each of ``calls`` and then for each new one; empty where the run was rejected."""
    outcome: str = ""
    """``waits`` (new calls have left), ``ended``, ``failed`` or ``dropped``."""
    output: str = ""


@dataclass(eq=False)
class Turn:
    """One request to an upstream, and what came of the model's reply. Times are as in `Trace`."""

    upstream: str
    messages: Sequence[Mapping[str, Any]]
    fields: Mapping[str, Any]
    """The request's other fields, ``model`` among them."""
    began: float
    operation: str = "chat"
    """Else the path below the upstream's base URL: what is passed on there as it is."""
    opened: float | None = None
    """When the upstream had accepted."""
    first: float | None = None
    """When the first piece of the answer came."""
    ended: float | None = None
    reply: Sequence[str] = ()
    """Pieces, as they came; empty where nothing was emulated: see ``wire``."""
    reasoning: Sequence[str] = ()
    blocks: list[Block] = field(default_factory=list)
    program: str = ""
    """What all blocks together were read as."""
    lines: dict[str, int] = field(default_factory=dict)
    """Id of a call -> its line in ``program``."""
    cell: str = ""
    """Code for the interpreter."""
    verdict: str = ""
    """``answered``, ``ran`` (a cell), or why the reply was of no use: ``invalid``, ``required``, ..."""
    diagnostics: str = ""
    finish_reason: str | None = None
    """The upstream's; None where it was disconnected before it told."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the upstream told them, else estimated; once the turn has ended."""
    error: str = ""
    wire: Wire = field(default_factory=Wire)

    @property
    def refused(self) -> bool:
        return self.verdict not in ("", "answered", "ran")

    def read(self, block: Block) -> None:
        if len(self.blocks) < MOST_BLOCKS:
            self.blocks.append(block)


@dataclass(eq=False)
class Trace:
    """One request. Written by the thread that serves it; others may read it meanwhile."""

    id: str
    """The ``x-request-id`` of its response."""
    method: str
    path: str
    client: str = ""
    """Whose it is, as elsewhere: "" for all where there are no keys."""
    body: bytes = b""
    began: float = field(default_factory=time.time)
    """Unix time; all other times are seconds since then."""
    route: str = ""
    """The rule that ``path`` matches: there are few of them."""
    client_name: str = ""
    """As the operator calls it."""
    propagated: dict[str, str] = field(default_factory=dict)
    """Headers that go with each request to an upstream."""
    wired: bool = True
    """Whether raw bytes are recorded."""
    background: bool = False
    """The answer is made after the response has left."""
    _zero: float = field(default_factory=time.perf_counter)

    model: str = ""
    """As the client named it."""
    upstream: str = ""
    profile: str = ""
    mode: Mode = ""
    streamed: bool = False
    stubs: Callable[[], str] = str
    """The offered tools as the model was shown them; made when asked for."""
    tools: tuple[str, ...] = ()
    container: str = ""

    turns: list[Turn] = field(default_factory=list)
    resumed: Resumed | None = None
    turns_saved: int = 0
    calls: list[ToolCall] = field(default_factory=list)
    """Those that were sent to the client; those that an upstream made are in its chunks."""
    call_count: int = 0
    """Of all calls that were sent, whoever made them."""
    cell: str = ""
    """Code that the client had run itself."""
    cells: list[Any] = field(default_factory=list)
    """`CodeFinished` events."""
    said: float | None = None
    """When the first words, reasoning or call left for the client."""
    called: float | None = None
    """When the first call left."""
    times: list[tuple[str, float, float]] = field(default_factory=list)
    """What else took time: name, begin, end."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    error: str = ""
    code: str = ""
    """Of the error."""
    status: int = 0
    wire: Wire = field(default_factory=Wire)
    written: bool = False
    """All of the response was there before its client left."""
    seconds: float | None = None
    """How long all took; None while it runs."""
    state: State = "running"
    stripped: bool = False
    """It was too large to keep: what was said in it is gone."""

    def now(self) -> float:
        return time.perf_counter() - self._zero

    @property
    def _is_whole(self) -> bool:
        """Whether its client had nothing to wait for any more."""
        return bool(self.written or self.error or self.finish_reason)

    @property
    def repairs(self) -> int:
        """Replies that were of no use."""
        return sum(turn.refused for turn in self.turns)

    def turn(
        self, upstream: str, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Turn:
        """A request to an upstream begins. ``messages`` may grow after this; what is kept does not."""
        turn = Turn(upstream, tuple(messages), fields, self.now())
        self.turns.append(turn)
        return turn

    def failed(self, message: str, code: str | None = None) -> None:
        self.error, self.code = message, code or ""

    def answered(self, data: bytes) -> None:
        """Bytes of the response leave."""
        if self.wired:
            self.wire.add(time.perf_counter() - self._zero, data)

    def end(self, *, left: bool = False) -> bool:
        """The response has left, or its client has. False, and nothing done, if that was known."""
        with _ENDING:
            if self.seconds is not None:
                return False
            if self.status == ClientDisconnected.status or (left and not self._is_whole):
                self.state = "left"
            elif self.error or self.status >= 400:
                self.state = "failed"
            else:
                self.state = "called" if self.calls else "answered"
            self.seconds = self.now()
        return True


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""Of the request that this context serves; None where nothing is recorded."""


def propagated() -> Mapping[str, str]:
    """The headers of the request that is served that go with each to an upstream."""
    trace = current.get()
    return {} if trace is None else trace.propagated


def current_turn() -> Turn | None:
    """The turn that is being read."""
    trace = current.get()
    return trace.turns[-1] if trace is not None and trace.turns else None


def wire() -> Callable[[Sequence[bytes]], None] | None:
    """What to tell of the events that an upstream sends in the turn that begins, as they come together;
    None to tell of none.
    """
    trace = current.get()
    if trace is None or not trace.wired or not trace.turns:
        return None
    add, now = trace.turns[-1].wire.add, trace.now

    def record(events: Sequence[bytes]) -> None:
        at = now()
        for event in events:
            add(at, event)

    return record


def timed(name: str) -> AbstractContextManager[None]:
    """Record how long the block takes."""
    trace = current.get()
    return nullcontext() if trace is None else _timed(trace, name)


@contextmanager
def unrecorded() -> Iterator[None]:
    """What happens in the block is no part of the request."""
    token = current.set(None)
    try:
        yield
    finally:
        current.reset(token)


@contextmanager
def _timed(trace: Trace, name: str) -> Iterator[None]:
    began = trace.now()
    try:
        yield
    finally:
        if len(trace.times) < MOST_TIMES:
            trace.times.append((name, began, trace.now()))
