"""What code in a sandbox may use, and how far it has come. Knows nothing of tools, prompts or HTTP."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sandbox.inside import values

JSON: TypeAlias = values.JSON


@dataclass(frozen=True)
class Paused:
    """A cell called an offered function and waits. `line` is 1-based in the cell, if known.

    `pending` are other calls that the cell waits for at the same time, in their order. Calls with the same
    `batch`, if not 0, belong to one display, comprehension or `asyncio.gather`.
    """

    name: str
    args: tuple[JSON, ...] = ()
    kwargs: Mapping[str, JSON] = field(default_factory=dict)
    line: int | None = None
    batch: int = 0
    pending: "tuple[Paused, ...]" = ()


@dataclass(frozen=True)
class Finished:
    """A cell ran to its end.

    `text` is the repr of its last expression, or None without one or if the value is None. `value` is the
    same value as JSON, or None if JSON cannot represent it.
    """

    stdout: str = ""
    value: JSON = None
    text: str | None = None


Step: TypeAlias = Paused | Finished


@dataclass(frozen=True)
class Limits:
    """The limits of one program, or of one session of cells."""

    seconds: float = 10.0
    """Running time of a program, or of one cell. Time in which it waits for a call does not count."""
    memory: int = 256 * 1024 * 1024
    """Bytes in addition to the memory that the process uses before the first line."""
    output: int = 256 * 1024
    """Bytes that a cell may print."""
    pauses: int = 256
    """Calls of offered functions in one cell."""


def failed_result(text: str) -> JSON:
    """What a host returns to a cell's call that failed: the call raises ToolError(``text``)."""
    return {values.FAILED: text}


def fresh_seed() -> int:
    """The current time in microseconds since 1970, because a stopped clock must show today's date."""
    return time.time_ns() // 1000
