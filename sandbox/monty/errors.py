"""Translate Monty's errors into ours: the program's failure, a limit, a dead worker, or a missing feature
of Monty. Monty numbers the pieces of source that it was given (`<python-input-3>`); positions in errors
become lines of the program.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import pydantic_monty as pm

from sandbox.engine import Limits
from sandbox.errors import (
    Frame,
    ProgramFailed,
    SandboxDied,
    SandboxLimit,
    SandboxTimeout,
    Unsupported,
    compile_failure,
    render_traceback,
)
from sandbox.monty.gaps import is_gap
from sandbox.parsing import parse


class MontyPieces:
    """The pieces of one session; the last one is running."""

    def __init__(self) -> None:
        self._sources: list[str] = []
        self._running = b""
        self.lines: dict[int, int] = {}
        """Line of the running piece -> line of the program, if the piece was rewritten."""
        self._first = 0
        """The number of the first piece that is not the preamble."""

    def add(self, source: str) -> None:
        self._sources.append(source)
        self._running = source.encode(errors="surrogatepass")

    @property
    def running(self) -> str:
        return self._sources[-1]

    def end_preamble(self) -> None:
        """Keep the pieces so far out of tracebacks."""
        self._first = len(self._sources)

    def line_of(self, trace: Sequence[pm.Frame]) -> int | None:
        """The innermost line of ``trace`` in the running piece."""
        current = len(self._sources) - 1
        lines = [frame.line for frame in trace if _piece_number(frame.filename) == current]
        return self.lines.get(lines[-1], lines[-1]) if lines else None

    def line(self, position: pm.SourceRange) -> int | None:
        """The program line of a position; None outside the running piece."""
        if _piece_number(position.filename) != len(self._sources) - 1:
            return None
        line = self._running.count(b"\n", 0, position.start) + 1
        return self.lines.get(line, line)

    def frames(self, trace: Sequence[pm.Frame]) -> list[Frame]:
        """The frames of the program, without the preamble."""
        current = len(self._sources) - 1
        return [
            Frame(
                self.lines.get(frame.line, frame.line)
                if _piece_number(frame.filename) == current
                else frame.line,
                frame.function_name or "<module>",
                frame.source_line or "",
            )
            for frame in trace
            if _piece_number(frame.filename) >= self._first
        ]


def _piece_number(filename: str) -> int:
    """3 for <python-input-3>; -1 for code in an eval() or exec() string."""
    digits = filename.removeprefix("<python-input-").removesuffix(">")
    return int(digits) if digits.isdigit() else -1


_NOT_CATCHABLE = re.compile(r"(?:feed|turn) time limit exceeded|memory limit exceeded: ")


class MontyErrors:
    """Translates the errors of one session."""

    def __init__(self, pieces: MontyPieces, limits: Limits, printed: Callable[[], str]) -> None:
        self._pieces = pieces
        self._limits = limits
        self._printed = printed

    @contextmanager
    def translate(self) -> Iterator[None]:
        """Raise a `SandboxError` instead of an error of Monty."""
        try:
            yield
        except pm.MontySyntaxError as error:
            self._syntax(error)
        except pm.MontyRuntimeError as error:
            self._runtime(error)
        except pm.MontyCrashedError as error:
            if error.timed_out:
                raise SandboxTimeout(self._limits.seconds) from error
            raise SandboxDied(str(error)) from error
        except (pm.MontyConversionError, pm.MontyDisconnectError) as error:
            raise SandboxDied(str(error)) from error

    def _syntax(self, error: pm.MontySyntaxError) -> NoReturn:
        """Source that CPython parses is `Unsupported`; else raise CPython's message, which is better than
        Monty's."""
        trace = error.traceback()
        try:
            parse(self._pieces.running)
        except SyntaxError as cpython_error:
            raise compile_failure(
                cpython_error.lineno or 1,
                cpython_error.text or "",
                cpython_error.msg,
                type(cpython_error).__name__,  # IndentationError and TabError, too
                self._printed(),
            ) from error
        except (ValueError, RecursionError, MemoryError) as cpython_error:
            self._fail(error, type(cpython_error).__name__, str(cpython_error), trace)
        raise Unsupported(str(error), trace[0].line if trace else None) from error

    def _runtime(self, error: pm.MontyRuntimeError) -> NoReturn:
        inner, trace = error.exception(), error.traceback()
        kind, message = type(inner).__name__, str(inner)
        if _NOT_CATCHABLE.match(message):
            if isinstance(inner, TimeoutError):
                raise SandboxTimeout(self._limits.seconds) from error
            if isinstance(inner, MemoryError):
                # The limit on output is reported as a memory limit, without a line of the program.
                over_output = message.endswith(f"> {self._limits.output} bytes")
                raise SandboxLimit("output" if over_output else "memory") from error
        if message.startswith("suspension limit"):
            raise SandboxLimit("calls") from error
        if is_gap(inner, message):
            raise Unsupported(message, self._pieces.line_of(trace)) from error
        self._fail(error, kind, message, trace)

    def _fail(
        self, error: Exception, kind: str, message: str, trace: Sequence[pm.Frame]
    ) -> NoReturn:
        frames = self._pieces.frames(trace)
        raise ProgramFailed(
            kind,
            message,
            self._pieces.line_of(trace),
            render_traceback(frames, kind, message),
            self._printed(),
        ) from error
