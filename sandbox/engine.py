"""The two verbs that every engine offers: start a piece of a program, resume it where it paused.

An engine is a REPL with pauses. It knows nothing of tools, prompts or HTTP: a *name* is a callable
that pauses, and what its call means is for the host to decide.
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


@dataclass(frozen=True)
class Paused:
    """The program called a pausing name and waits. `line` is 1-based in the piece, if known.

    `pending` are other calls that a notebook's cell waits for at the same time, in their order.
    Calls of the same `batch`, if not 0, are of one display, comprehension or `asyncio.gather`.
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

    `text` is the repr of its last expression (None without one, or if that is None). `value` is
    the same as JSON, or None where JSON has no shape for it.
    """

    stdout: str = ""
    value: JSON = None
    text: str | None = None


Step: TypeAlias = Paused | Finished


@dataclass(frozen=True)
class Limits:
    """What one session may use, in any engine."""

    seconds: float = 10.0
    """Running time of one piece; time spent paused in the host does not count."""
    memory: int = 256 * 1024 * 1024
    """Bytes. What a kernel takes before the program's first line is not counted."""
    output: int = 256 * 1024
    """Bytes printed by one piece."""
    pauses: int = 256
    """Calls of pausing names in one session."""


class Session(Protocol):
    """State kept between pieces. Used by one thread at a time."""

    def start(self, source: str) -> Step:
        """Run one piece: one or more whole statements. Raises SandboxError."""

    def resume(self, value: JSON) -> Step:
        """Give the paused call its result and run on. Raises SandboxError."""

    def kill(self) -> None:
        """End the session, also while it runs: `start` raises SandboxDied then. Callable from any thread."""


class Engine(Protocol):
    """Hands out sessions; safe to share between threads. `close` leaves nothing behind."""

    @property
    def name(self) -> str: ...

    def get_ready(self) -> None:
        """Programs may come soon: start what takes long, in the background. Cheap where that is done."""

    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> AbstractContextManager[Session]:
        """Open a fresh session in which calls of `names` pause.

        `preamble` is Python source run first. `seed` is what `fresh_seed` once returned: the clock
        stands still at that instant and random numbers follow from it, so that a program can
        be replayed; 0 leaves both alone. Raises SandboxUnavailable or SandboxBusy.
        """

    def close(self) -> None: ...


def fresh_seed() -> int:
    """The present instant in microseconds since 1970: a frozen clock must tell today's date."""
    return time.time_ns() // 1000
