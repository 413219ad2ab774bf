"""What readers are: text of a block in, Python statements out. Knows no dialect."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from emulator.reading.diagnostics import Diagnostic, render

#: Characters that one block may have; what is longer is no program that anyone meant.
MAX_BLOCK = 1 << 20
#: Top-level statements that one block may have.
MAX_STATEMENTS = 5000


@dataclass(frozen=True)
class Statement:
    """One top-level statement: valid Python, named like the stubs; 1-based line in the block.

    `original` is how it stands in the block, and `tree` what its source says, where the reader tells.
    """

    source: str
    line: int
    original: str = field(default="", compare=False)
    tree: ast.stmt | None = field(default=None, compare=False, repr=False)
    """To be looked at only; its lines are those of nothing in particular."""


class Unreadable(Exception):
    """The block is not what it looked like. Says why, in words for the model."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(render(self.diagnostics))


class Reader(Protocol):
    """Reads one block; incremental, and indifferent to where the text is cut."""

    def feed(self, text: str) -> list[Statement]:
        """The statements that have certainly closed."""
        ...

    def close(self) -> list[Statement]:
        """The rest. Raises Unreadable; what was returned before stays right all the same."""
        ...


def unreadable(
    message: str, *, line: int = 1, column: int = 0, source_line: str = "", hint: str | None = None
) -> Unreadable:
    """An Unreadable with one diagnostic."""
    return Unreadable([Diagnostic(message, line, column, source_line, hint)])
