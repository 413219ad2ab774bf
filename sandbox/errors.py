"""Errors of a sandbox, by whose fault they are. Knows nothing of engines, HTTP or prompts.

Only after `Unsupported` may another engine run the program. A failure, a limit or a refusal is final:
otherwise a program could choose its sandbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class SandboxError(Exception):
    """Base class of the errors that `Session.start` and `Session.resume` raise."""


class ProgramFailed(SandboxError):
    """The program raised an exception. `line` is 1-based in its piece, or None if unknown."""

    def __init__(
        self, kind: str, message: str, line: int | None, traceback: str, stdout: str = ""
    ) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.line = line
        self.traceback = traceback
        self.stdout = stdout


class Unsupported(SandboxError):
    """This engine cannot run this program as CPython does; another engine may."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class SandboxTimeout(SandboxError):
    """A piece ran longer than its limit. Time in which it is paused does not count."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the program ran longer than {seconds:g} s")
        self.seconds = seconds


class SandboxLimit(SandboxError):
    """The program reached a limit other than time. `what` is "memory", "output", "calls", ..."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the program exceeded its limit of {what}")
        self.what = what


class SandboxDied(SandboxError):
    """The worker or kernel of this session died. The engine and its other sessions continue."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxUnavailable(SandboxError):
    """The engine cannot open any session; `fix` tells the operator what to do."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix


class SandboxBusy(SandboxUnavailable):
    """All workers or kernels are in use; the same request may succeed in a moment."""


@dataclass(frozen=True)
class Frame:
    """One level of a traceback in the program's code; `line` is 1-based in its piece."""

    line: int
    function: str
    source_line: str


def compile_failure(
    line: int, text: str, message: str, kind: str = "SyntaxError", stdout: str = ""
) -> ProgramFailed:
    """The failure of a piece that does not compile; `text` is the line at fault."""
    traceback = render_traceback([Frame(line, "<module>", text)], kind, message)
    return ProgramFailed(kind, message, line, traceback, stdout)


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
