"""What readers make of the text of a block: Python statements, or the reason why it cannot be read. Knows no
dialect."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.reading.diagnostics import Diagnostic, render

#: Length limit of a block in characters; a longer one is not a real program.
MAX_BLOCK = 1 << 20
#: Limit of top-level statements in a block.
MAX_STATEMENTS = 5000


@dataclass(frozen=True)
class LiteralCall:
    """A call as a reader of JSON or tags has it: the Python name, and the arguments' values. Read-only."""

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    written_name: str = field(default="", compare=False)
    """The name as the model wrote it."""

    @property
    def source(self) -> str:
        """The call in Python, on one line: ``f(**{'city': 'Oslo'})``."""
        arguments = [repr(value) for value in self.args]
        arguments += [f"**{dict(self.kwargs)!r}"] if self.kwargs else []
        return f"{self.name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Statement:
    """One top-level statement: valid Python that calls the stubs by name; `line` is 1-based in the
    block.

    `original` is the statement as the model wrote it and `tree` its syntax tree, if the reader
    provides them. `call` is the whole statement if the model wrote the call in another syntax:
    then nothing needs to parse `source`.
    """

    source: str
    line: int
    original: str = field(default="", compare=False)
    tree: ast.stmt | None = field(default=None, compare=False, repr=False)
    """Read-only. Its line numbers do not refer to the block."""
    call: LiteralCall | None = field(default=None, compare=False, repr=False)


class Unreadable(Exception):
    """The block cannot be read. The diagnostics give the reason in words for the model."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(render(self.diagnostics))


class NoCall(Unreadable):
    """Text between the marks of a call that does not read as one: a sentence about calls, for example."""


def unreadable(
    message: str, *, line: int = 1, column: int = 0, source_line: str = "", hint: str | None = None
) -> Unreadable:
    """Return an Unreadable with one diagnostic."""
    return Unreadable([Diagnostic(message, line, column, source_line, hint)])
