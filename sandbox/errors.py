"""Errors of a sandbox, by whose fault they are. Knows nothing of HTTP or prompts."""

from collections.abc import Sequence
from dataclasses import dataclass


class SandboxError(Exception):
    """Base class."""


class ProgramFailed(SandboxError):
    """A cell raised an exception. `line` is 1-based in it, or None if unknown."""

    def __init__(
        self, kind: str, message: str, line: int | None, traceback: str, stdout: str = ""
    ) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.line = line
        self.traceback = traceback
        self.stdout = stdout


class SandboxTimeout(SandboxError):
    """A program or a cell ran longer than its limit. Time in which it waits for a call does not count."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the program ran longer than {seconds:g} s")
        self.seconds = seconds


class SandboxLimit(SandboxError):
    """The program reached a limit other than time. `what` is "memory", "output", "calls", ..."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the program exceeded its limit of {what}")
        self.what = what


class SandboxDied(SandboxError):
    """The process of this program or session died. Others continue."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxUnavailable(SandboxError):
    """Nothing can run here; `fix` tells the operator what to do."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix


class SandboxBusy(SandboxUnavailable):
    """All processes are in use; the same request may succeed in a moment."""


@dataclass(frozen=True)
class Frame:
    """One level of a traceback in the program's code; `line` is 1-based in its piece."""

    line: int
    function: str
    source_line: str


_SHOWN_FRAMES = 8


def render_traceback(frames: Sequence[Frame], kind: str, message: str) -> str:
    """The traceback for a model: lines of its program, no file names, deep recursion shortened."""
    lines = ["Traceback (most recent call last):"] if frames else []
    hidden = len(frames) - _SHOWN_FRAMES
    for index, frame in enumerate(frames):
        if hidden > 0 and 3 <= index < 3 + hidden:
            if index == 3:
                lines.append(f"  ... {hidden} more calls ...")
            continue
        lines.append(f"  line {frame.line}, in {frame.function}")
        if frame.source_line:
            lines.append(f"    {frame.source_line.strip()}")
    lines.append(f"{kind}: {message}" if message else kind)
    return "\n".join(lines)
