"""What can go wrong in a sandbox, by whose fault. Knows nothing of engines, HTTP or prompts.

Only `Unsupported` may move a program on to the next engine. A failure, a limit or a refusal is
final: falling through on those would let a program pick its own sandbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class SandboxError(Exception):
    """Base of everything that `Session.start` and `Session.resume` raise about a program."""


class ProgramFailed(SandboxError):
    """The program raised. `line` is 1-based in the piece that was started, or None if unknown."""

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
    """This engine cannot run this program as CPython would; another engine may."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class SandboxTimeout(SandboxError):
    """A piece ran longer than its deadline. Time spent paused in the host does not count."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the program ran longer than {seconds:g} s")
        self.seconds = seconds


class SandboxLimit(SandboxError):
    """A limit other than time was reached; `what` names it: memory, output, suspensions, ..."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the program used more {what} than it may")
        self.what = what


class SandboxDied(SandboxError):
    """The worker or kernel behind this session is gone. The engine and other sessions go on."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxUnavailable(SandboxError):
    """The engine cannot offer a session at all; `fix` says what the operator can do."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix


class SandboxBusy(SandboxUnavailable):
    """Every place is taken just now; the same request may succeed in a moment."""


@dataclass(frozen=True)
class Frame:
    """One level of a traceback in the program's own code; `line` is 1-based in its piece."""

    line: int
    function: str
    source_line: str


_SHOWN_FRAMES = 8


def render_traceback(frames: Sequence[Frame], kind: str, message: str) -> str:
    """The traceback as a model should read it: its own lines, no file names, deep recursion cut."""
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
