"""The code that one of Monty's sessions was fed, piece by piece, and where in it something happened.

Knows nothing of what the code does. Monty numbers the pieces: `<python-input-3>`.
"""

from collections.abc import Sequence

import pydantic_monty as pm

from sandbox.errors import Frame


class MontyPieces:
    """The pieces of one session, the last of which runs."""

    def __init__(self) -> None:
        self._sources: list[str] = []
        self._bytes = b""  # of the last of them
        self.lines: dict[int, int] = {}
        """Line of the piece that runs -> line of the program, where the piece was rewritten."""
        self._first = 0  # pieces before this one are the preamble

    def add(self, source: str) -> None:
        self._sources.append(source)
        self._bytes = source.encode(errors="surrogatepass")

    @property
    def running(self) -> str:
        return self._sources[-1]

    def end_preamble(self) -> None:
        """Leave what there is so far out of tracebacks."""
        self._first = len(self._sources)

    def line_of(self, trace: Sequence[pm.Frame]) -> int | None:
        """The innermost line within the piece that runs."""
        current = len(self._sources) - 1
        lines = [frame.line for frame in trace if _piece_number(frame.filename) == current]
        return self.lines.get(lines[-1], lines[-1]) if lines else None

    def line(self, position: pm.SourceRange) -> int | None:
        """The line of a place, None if that is not in the piece that runs."""
        if _piece_number(position.filename) != len(self._sources) - 1:
            return None
        line = self._bytes.count(b"\n", 0, position.start) + 1
        return self.lines.get(line, line)

    def frames(self, trace: Sequence[pm.Frame]) -> list[Frame]:
        """The program's own frames, in its own lines."""
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
