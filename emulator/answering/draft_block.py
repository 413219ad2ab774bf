"""A block of a reply that may be a part of its program, and where the model wrote its statements."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic, locate
from emulator.reading.readers import Reader, Statement, Unreadable, mentions_tool

# Of these it is not plain from the outside that they are meant as calls.
_AMBIGUOUS = ("python", "json", "yaml")


@dataclass
class DraftBlock:
    """One block, as far as it has come."""

    dialect: str
    reader: Reader
    pieces: list[str]
    """As it was written, its fence included."""
    in_a_row: bool
    """Whether no word stands between it and the block before."""
    text: list[str] = field(default_factory=list)
    """As it was written, without its fence."""
    statements: list[Statement] = field(default_factory=list)
    error: Unreadable | None = None
    is_program: bool = False
    is_quoted: bool = False

    @property
    def raw(self) -> str:
        return "".join(self.pieces)

    @property
    def inner(self) -> str:
        return "".join(self.text)

    def means_a_call(self, names: Collection[str]) -> bool:
        """Whether unreadable text was meant to call one of the offered functions."""
        return self.dialect not in _AMBIGUOUS or mentions_tool(self.raw, names)

    def added_to(self, program: Program) -> Program | None:
        """The program with this block behind it; None while the block only repeats it.

        Models like to write the whole program again, with or without more behind it. But in a row of
        tags each is a call of its own, and two that are equal are meant: two throws of a die.
        """
        if self.in_a_row and self.dialect == "markup":
            return program + self.statements
        before = [statement.source for statement in program.statements]
        further = [statement.source for statement in self.statements]
        if further == before[: len(further)]:
            return None
        if before and further[: len(before)] == before:
            return Program(tuple(self.statements))
        return program + self.statements


class ForeignStatements:
    """The statements that were read from another syntax than Python, and their blocks."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Statement, DraftBlock]] = {}

    def add(self, statement: Statement, block: DraftBlock) -> None:
        self._blocks[id(statement)] = (statement, block)

    def as_written(self, diagnostic: Diagnostic, program: Program | None) -> Diagnostic:
        """The fault at its place in what the model wrote, where that was no Python."""
        line = 0
        for statement in program.statements if program else ():
            first, line = line + 1, line + statement.source.count("\n") + 1
            if first <= diagnostic.line <= line and id(statement) in self._blocks:
                _, block = self._blocks[id(statement)]
                beside = [one for one in block.statements if one.line == statement.line]
                return locate(diagnostic, block.inner, statement.line, sole=len(beside) < 2)
        return diagnostic
