"""The interface of all engines: `start` a piece of a program, `resume` it where it paused.

An engine is a REPL with pauses. A *name* is a function whose calls pause the program; the host decides
what a call does. Knows nothing of tools, prompts or HTTP.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from sandbox.inside import values

JSON: TypeAlias = values.JSON

CHECK_PREFIX = "_check"
"""The prefix of the names of check functions: a host inserts calls of them into a program, and defines
them in the preamble. A check function returns its only argument."""


AWAITABLE = values.AWAITABLE
"""The prefix of pausing names whose calls return an awaitable. Such a call starts when it is awaited, and the
program pauses when none of its coroutines can continue: all calls that it waits for are reported together."""


@dataclass(frozen=True)
class Paused:
    """The program called a pausing name and waits. `line` is 1-based in the piece, if known.

    `pending` are other calls that the program (`AWAITABLE`), or a notebook's cell, waits for at the same
    time, in their order.
    Calls of a cell with the same `batch`, if not 0, belong to one display, comprehension or
    `asyncio.gather`.
    """

    name: str
    args: tuple[JSON, ...] = ()
    kwargs: Mapping[str, JSON] = field(default_factory=dict)
    line: int | None = None
    batch: int = 0
    pending: "tuple[Paused, ...]" = ()


@dataclass(frozen=True)
class Finished:
    """A piece ran to its end.

    `text` is the repr of its last expression, or None without one or if the value is None. `value` is the
    same value as JSON, or None if JSON cannot represent it.
    """

    stdout: str = ""
    value: JSON = None
    text: str | None = None


Step: TypeAlias = Paused | Finished


@dataclass(frozen=True)
class Limits:
    """The limits of one session, in every engine."""

    seconds: float = 10.0
    """Running time of one piece. Time in which the piece is paused does not count."""
    memory: int = 256 * 1024 * 1024
    """Bytes in addition to the memory that a kernel uses before the program's first line."""
    output: int = 256 * 1024
    """Bytes that one piece may print."""
    pauses: int = 256
    """Calls of pausing names in one session."""


class Session(Protocol):
    """A REPL: variables persist between pieces. One thread at a time may use it."""

    def start(self, source: str) -> Step:
        """Run one piece: one or more complete statements. Raises SandboxError."""

    def resume(self, *results: JSON) -> Step:
        """Return results to the paused call and, in order, to calls that are `pending` with it; continue.

        Calls without a result stay pending. Raises SandboxError.
        """

    def kill(self) -> None:
        """End the session. If it runs, `start` raises SandboxDied. May be called from any thread."""


class Engine(Protocol):
    """Opens sessions. Threads may share it. `close` stops all its processes."""

    @property
    def name(self) -> str: ...

    def get_ready(self) -> None:
        """Programs may follow soon: start slow parts in the background. Returns immediately if that has
        been done."""

    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> AbstractContextManager[Session]:
        """Open a fresh session in which calls of `names` pause.

        `preamble` is Python source that runs first. `seed` is a value of `fresh_seed`: the clock stops at
        that instant and random numbers are derived from it, so that a program can be replayed; 0 changes
        neither. Raises SandboxUnavailable or SandboxBusy.
        """

    def close(self) -> None: ...


def failed_result(text: str) -> JSON:
    """What a host returns to a notebook's call that failed: the call raises ToolError(``text``)."""
    return {values.FAILED: text}


def fresh_seed() -> int:
    """The current time in microseconds since 1970, because a stopped clock must show today's date."""
    return time.time_ns() // 1000
