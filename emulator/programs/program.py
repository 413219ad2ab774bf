"""A program as values: the model's statements, the calls that the program made, and how a run ended.
Knows no sandbox."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.core.cached_property import cached_property
from emulator.core.events import ToolKind
from emulator.programs.failures import Failure
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.readers import LiteralCall, Statement
from sandbox.parsing import parse


@dataclass(frozen=True)
class Program:
    """The model's top-level statements, in order."""

    statements: tuple[Statement, ...] = ()

    def __add__(self, statements: Sequence[Statement]) -> Program:
        return Program((*self.statements, *statements))

    @cached_property
    def source(self) -> str:
        return "\n".join(statement.source for statement in self.statements)

    def before(self, line: int) -> Program:
        """The statements that end before ``line`` of `source`."""
        earlier, end = [], 0
        for statement in self.statements:
            end += statement.source.count("\n") + 1
            if end >= line:
                break
            earlier.append(statement)
        return Program(tuple(earlier))

    @cached_property
    def calls(self) -> tuple[LiteralCall, ...] | None:
        """The statements if each is a call that needs no parsing, in line order; otherwise None."""
        calls = tuple(one.call for one in self.statements if one.call is not None)
        return calls if len(calls) == len(self.statements) else None

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of `source`. It is shared: do not modify it."""
        return parse(self.source)

    def diagnostic(
        self, message: str, line: int, column: int = 0, hint: str | None = None
    ) -> Diagnostic:
        lines = self.source.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return Diagnostic(message, max(line, 1), column, text, hint)


@dataclass(frozen=True)
class Call:
    """A valid call: the tool's wire name, and arguments that its schema accepts."""

    name: str
    arguments: dict[str, Any]
    kind: ToolKind = "function"
    key: str = field(default="", compare=False)
    """A digest of what the program passed; "" if unknown."""


@dataclass(frozen=True)
class CallRecord:
    """A call that an earlier run made, with its result if the client has sent it."""

    call: Call
    result: Any = None
    """The JSON value that the result's text spells, else the text."""
    known: bool = False
    """True if the result has arrived."""
    text: str | None = None
    """The result's text, unless ``result`` is that text."""
    failure: Failure | None = None
    """How the call went wrong, if the result reports that."""

    @property
    def result_text(self) -> str | None:
        """The result as the client sent it; None before it arrives."""
        if not self.known:
            return None
        return self.result if self.text is None else self.text


@dataclass(frozen=True)
class Outcome:
    """What one run did.

    ``stopped``: the run stopped before the program's end, where it needs an unknown result. ``pending``:
    some call has no result yet, so ``stdout`` and ``value`` are empty: they may depend on it.
    """

    calls: tuple[Call, ...] = ()
    """The calls that no earlier run made."""
    stopped: bool = False
    pending: bool = False
    stdout: str = ""
    value: str | None = None
    call_sites: tuple[tuple[int, str], ...] = ()
    """Line and tool name of every call of the run, recorded calls first."""

    @property
    def output(self) -> str:
        """What the program printed, followed by the value of its last expression."""
        parts = (self.stdout.rstrip("\n"), self.value)
        return "\n".join(part for part in parts if part)


class ProgramRejected(Exception):
    """The program cannot run, or did something forbidden; the model can repair it.

    Before that the run made ``calls`` and printed ``stdout``.
    """

    def __init__(
        self, diagnostics: Sequence[Diagnostic], calls: tuple[Call, ...] = (), stdout: str = ""
    ) -> None:
        super().__init__("; ".join(diagnostic.message for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)
        self.calls = calls
        self.stdout = stdout


class ProgramRaised(ProgramRejected):
    """The program itself raised an exception, as it would in plain Python. The calls that it made before
    count."""


class ProgramTooSlow(ProgramRejected):
    """The time limit ran out. The host cannot tell a slow program from a slow sandbox."""


class ReplayDiverged(Exception):
    """A replayed program made another call than the recorded one."""
