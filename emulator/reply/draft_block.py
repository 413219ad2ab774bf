"""One block of a reply that may be part of its program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from emulator.core.cached_property import cached_property
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic, locate
from emulator.reading.openings import MARK, MARK_TAG
from emulator.reading.own_names import OwnNames
from emulator.reading.python_reader import PythonReader
from emulator.reading.readers import Reader, Statement, Unreadable
from emulator.reading.statements import NoCall
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames

_LABELS = frozenset(f"{MARK} tool_call tool_calls tool_use function_call function_calls".split())
"""Some models label calls so without being told."""
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*(?P<label>\{?[^\s({]*)")
_BARE_CALL = re.compile(r"\s*[\w.\-]+\s*[:({]")
"""A name and its arguments, as prose may have them: ``f {"a": 1}``."""
_OWN_SYNTAX = frozenset({"markup", "react", "patch", "leftover"})
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
    is_cut: bool = False
    """The reply ended in it: its last statement was not read."""
    calls_tool: bool = False
    """A statement calls an offered function."""
    cell: str | None = None
    """The code that the interpreter runs, if the block is a cell."""
    is_quoted: bool = False
    """Another author wrote a part of it (`quotations`)."""
    quoted: list[Statement] = field(default_factory=list)
    """The statements from the first quoted one on: they run if the model says RUN."""
    tools: set[str] = field(default_factory=set)
    """The Python names of the tools that the statements use."""
    has_run: bool = False
    """Whether calls of the block may have been sent before its end."""
    is_shown: bool = False
    """Its text is among the words of the answer."""

    @property
    def has_statements(self) -> bool:
        return bool(self.statements or self.quoted)

    def quote_all(self) -> None:
        """Another author wrote the whole block."""
        self.is_quoted, self.calls_tool = True, False
        self.statements, self.quoted = [], [*self.statements, *self.quoted]

    def confirm(self) -> None:
        """The model said RUN: nothing in the block is another author's."""
        self.is_quoted = False
        self.statements, self.quoted = [*self.statements, *self.quoted], []

    @property
    def raw(self) -> str:
        return "".join(self.pieces)

    @property
    def as_shown(self) -> str:
        """The block as the user reads it: the label that the prompt teaches says Python to others."""
        if self.label != MARK:
            return self.raw
        return self.pieces[0].replace(MARK, "python", 1) + "".join(self.pieces[1:])

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
        return fence["label"].lower().strip("{.}:") if fence else None

    @property
    def is_labelled(self) -> bool:
        """Whether its label says that it runs."""
        return self.label in _LABELS or self.pieces[0].strip() == MARK_TAG

    @property
    def is_marked(self) -> bool:
        """Whether the model marked it: by the label, or in its own call syntax outside a fence."""
        if self.label is not None or self.is_labelled or isinstance(self.error, NoCall):
            return self.is_labelled
        if self.pieces[0].strip():  # a tag around Python
            return bool(self.tools)
        is_bare = self.dialect == "markup" and _BARE_CALL.match(self.inner)
        return self.dialect in _OWN_SYNTAX and not is_bare

    @property
    def may_stand_alone(self) -> bool:
        """Whether it is a call if the reply is nothing else: any syntax but a shell command."""
        return self.dialect != "command"

    def mentioned_tools(self, names: ToolNames) -> set[str]:
        """The Python names of the offered functions that the text seems to call."""
        calls = _CALL.finditer(self.raw)
        found = {names.find_in_code(call["name"]) for call in calls if not call["defined"]}
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
