"""One block of a reply that may be part of its program."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from emulator.core.cached_property import cached_property
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic, locate
from emulator.reading.fences import LABEL
from emulator.reading.openings import begins_with_call
from emulator.reading.own_names import OwnNames
from emulator.reading.python_reader import PythonReader
from emulator.reading.readers import Reader, Statement, Unreadable, mentions_tool
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames
from emulator.reply.early_call import EarlyCall

_LABELS = frozenset(f"{LABEL} tool_call tool_calls tool_use function_call function_calls".split())
"""Some models label calls so without being told."""
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*(?P<label>[^\s({]*)")
_BARE_CALL = re.compile(r"\s*[\w.\-]+\s*[:({]")
"""A name and its arguments, as prose may have them: ``f {"a": 1}``."""
_OWN_SYNTAX = frozenset({"markup", "react", "patch", "leftover"})
# A block of these dialects is not necessarily meant as a call.
_AMBIGUOUS = ("json", "yaml")
_CALL = re.compile(
    rf"(?P<defined>\b(?:def|class)\s+)?(?<![\w.])(?P<name>{WRITTEN_NAME.pattern})\s*\("
)
_SESSION = re.compile(
    r"\s*(?:>>> ?|In ?\[\d+\]: |\$ |[A-Z]:\\[^\n>]*> ?|PS [A-Z]:\\|[\w.-]+@[\w.-]+:[^\n]*[$#] )"
)


@dataclass(eq=False)
class DraftBlock:
    """One block, as far as it was fed."""

    dialect: str
    reader: Reader
    pieces: list[str]
    """The original text with its fence."""
    in_a_row: bool
    """Whether there is no prose between this block and the previous one."""
    text: list[str] = field(default_factory=list)
    """The original text without its fence."""
    statements: list[Statement] = field(default_factory=list)
    error: Unreadable | None = None
    is_program: bool = False
    cell: str | None = None
    """The code that the interpreter runs, if the block is a cell."""
    quoted: list[str] = field(default_factory=list)
    """Its quoted statements, or its text, about which the model is asked (`quotations`)."""
    tools: set[str] = field(default_factory=set)
    """The Python names of the tools that the statements use."""
    has_run: bool = False
    """Whether calls of the block may have been sent before its end."""
    early: EarlyCall | None = None
    """The search for a call that is sent while the model still writes it."""

    @property
    def is_committed(self) -> bool:
        """Whether a call of the block is sent while the model writes it: nothing after that can stop it."""
        return self.early is not None and self.early.started is not None

    @property
    def is_quoted(self) -> bool:
        return bool(self.quoted)

    @property
    def raw(self) -> str:
        return "".join(self.pieces)

    @property
    def as_shown(self) -> str:
        """The block as the user reads it: the label that the prompt teaches says Python to others."""
        if self.label != LABEL:
            return self.raw
        return self.pieces[0].replace(LABEL, "python", 1) + "".join(self.pieces[1:])

    @property
    def as_python(self) -> str:
        """The statements as code to show: a constrained reply is JSON, which is for no reader."""
        code = "\n".join(statement.source for statement in self.statements)
        return f"```python\n{code}\n```"

    @property
    def inner(self) -> str:
        return "".join(self.text)

    @property
    def own_names(self) -> OwnNames | None:
        return self.reader.own_names if isinstance(self.reader, PythonReader) else None

    @cached_property
    def is_session(self) -> bool:
        """Whether the block shows an interactive session. Known with its first statement."""
        # Functionary's calls begin with >>> too.
        return self.dialect != "markup" and _SESSION.match(self.inner) is not None

    @property
    def label(self) -> str | None:
        """The info string of its fence in lower case; None without a fence."""
        fence = _FENCE.match(self.pieces[0])
        return fence["label"].lower() if fence else None

    @property
    def is_labelled(self) -> bool:
        """Whether its label says that it runs."""
        return self.label in _LABELS

    @property
    def is_trusted(self) -> bool:
        """Whether its syntax says that it runs: the label, or a model's own call syntax outside a fence."""
        if self.label is not None:
            return self.is_labelled
        if self.pieces[0].strip():
            return True
        is_bare = self.dialect == "markup" and _BARE_CALL.match(self.inner)
        return self.dialect in _OWN_SYNTAX and not is_bare

    @property
    def may_stand_alone(self) -> bool:
        """Whether it is a call if the reply is nothing else: any syntax but a shell command."""
        return self.dialect != "command" and self.error is None

    def means_a_call(self, names: Collection[str]) -> bool:
        """Return True if unreadable text was meant to call one of the offered functions."""
        if self.dialect != "python":
            return self.dialect not in _AMBIGUOUS or mentions_tool(self.raw, names)
        if not (self.statements or self.label or begins_with_call(self.inner, ToolNames.of(names))):
            return False  # without a label it may be any language
        return bool(self.mentioned_tools(names))

    def mentioned_tools(self, names: Collection[str]) -> set[str]:
        """The Python names of the offered functions that the text seems to call."""
        offered = ToolNames.of(names)
        calls = _CALL.finditer(self.raw)
        found = {offered.find(call["name"]) for call in calls if not call["defined"]}
        return {name for name in found if name}

    def added_to(self, program: Program) -> Program | None:
        """The program with this block appended; None if the block only repeats the program.

        Models often write the whole program again, with or without additions. In a row of tags, however, two
        equal calls are two calls: two throws of a die.
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
    """The statements that were read from a syntax other than Python, with their blocks."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Statement, DraftBlock]] = {}

    def add(self, statement: Statement, block: DraftBlock) -> None:
        self._blocks[id(statement)] = (statement, block)

    def as_written(self, diagnostic: Diagnostic, program: Program | None) -> Diagnostic:
        """The diagnostic at its place in the original text, if that was not Python."""
        line = 0
        for statement in program.statements if program else ():
            first, line = line + 1, line + statement.source.count("\n") + 1
            if first <= diagnostic.line <= line and id(statement) in self._blocks:
                _, block = self._blocks[id(statement)]
                on_line = [one for one in block.statements if one.line == statement.line]
                return locate(diagnostic, block.inner, statement.line, sole=len(on_line) < 2)
        return diagnostic
