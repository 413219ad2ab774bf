"""What readers make of the text of a block: Python statements, or the reason why it cannot be read. Knows no
dialect."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from emulator.reading.diagnostics import Diagnostic, render

#: Length limit of a block in characters; a longer one is not a real program.
MAX_BLOCK = 1 << 20
#: Limit of top-level statements in a block.
MAX_STATEMENTS = 5000


@dataclass(frozen=True)
class Statement:
    """One top-level statement: valid Python that calls the stubs by name; `line` is 1-based in the
    block.

    `original` is the statement as the model wrote it and `tree` its syntax tree, if the reader
    provides them.
    """

    source: str
    line: int
    original: str = field(default="", compare=False)
    tree: ast.stmt | None = field(default=None, compare=False, repr=False)
    """Read-only. Its line numbers do not refer to the block."""


class Unreadable(Exception):
    """The block cannot be read. The diagnostics give the reason in words for the model."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(render(self.diagnostics))


def unreadable(
    message: str, *, line: int = 1, column: int = 0, source_line: str = "", hint: str | None = None
) -> Unreadable:
    """Return an Unreadable with one diagnostic."""
    return Unreadable([Diagnostic(message, line, column, source_line, hint)])
