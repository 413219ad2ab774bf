"""A program as values: what a model wrote, the calls that left it, and how its run ended. Knows no engine."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from emulator.events import ToolKind
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.readers import Statement
from sandbox.parsing import parse


@dataclass(frozen=True)
class Program:
    """What a model wrote, read: top-level statements in order."""

    statements: tuple[Statement, ...] = ()

    def __add__(self, statements: Sequence[Statement]) -> Program:
        return Program((*self.statements, *statements))

    @cached_property
    def source(self) -> str:
        return "\n".join(statement.source for statement in self.statements)

    def before(self, line: int) -> Program:
        """The statements that end before ``line`` of `source`."""
        kept, end = [], 0
        for statement in self.statements:
            end += statement.source.count("\n") + 1
            if end >= line:
                break
            kept.append(statement)
        return Program(tuple(kept))

    @cached_property
    def read(self) -> ast.Module:
        """The tree of `source`, for all who only look at it: nobody may change it."""
        return parse(self.source)

    def diagnostic(
        self, message: str, line: int, column: int = 0, hint: str | None = None
    ) -> Diagnostic:
        lines = self.source.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return Diagnostic(message, max(line, 1), column, text, hint)


@dataclass(frozen=True)
class Call:
    """A call that left a program: the tool's wire name and the arguments that its schema accepts."""

    name: str
    arguments: dict[str, Any]
    kind: ToolKind = "function"


@dataclass(frozen=True)
class Recorded:
    """A call of an earlier run, with its result where that has come in."""

    call: Call
    result: Any = None
    """What its text says as JSON, or else the text."""
    known: bool = False
    text: str | None = None
    """The text as it came, where ``result`` is something else."""


@dataclass(frozen=True)
class Outcome:
    """How far a run came.

    ``stopped``: before its end, where it needs a result that is not known yet. ``pending``: a call is
    out whose result is not known, so that what was printed or computed is not to be told to anyone.
    """

    calls: tuple[Call, ...] = ()
    stopped: bool = False
    pending: bool = False
    stdout: str = ""
    value: str | None = None
    made: tuple[tuple[int, str], ...] = ()
    """Line and tool of every call of the run, the recorded ones first."""

    @property
    def output(self) -> str:
        """What the program has to say: what it printed, and the value of its last expression."""
        parts = (self.stdout.rstrip("\n"), self.value)
        return "\n".join(part for part in parts if part)


class ProgramRejected(Exception):
    """The program cannot be run or did something that it may not; the model can repair it.

    ``calls`` left the run before that, and ``stdout`` was printed.
    """

    def __init__(
        self, diagnostics: Sequence[Diagnostic], calls: tuple[Call, ...] = (), stdout: str = ""
    ) -> None:
        super().__init__("; ".join(diagnostic.message for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)
        self.calls = calls
        self.stdout = stdout


class ProgramRaised(ProgramRejected):
    """The program went wrong by itself, as Python runs it: what it had called before is called."""

    of_types = False
    """Whether another reading of a result, as text or as JSON, might not have done so."""


class ProgramTooSlow(ProgramRejected):
    """The program, or the sandbox that it runs in, took too long; from here the two look alike."""


class Diverged(Exception):
    """A replayed program made another call than the recorded one."""
