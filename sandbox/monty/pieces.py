"""The source that a Monty session was given, piece by piece, and how positions map to the program's lines.

Knows nothing of what the code does. Monty numbers the pieces: `<python-input-3>`.
"""

from collections.abc import Sequence

import pydantic_monty as pm

from sandbox.errors import Frame


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
