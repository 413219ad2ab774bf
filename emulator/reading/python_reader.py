"""Read a block of Python, statement by statement, as it streams in.

A simple statement ends with its line; a compound statement ends when the next top-level line
begins. `repairs` and `rewrites` undo what models do to Python; prose between statements is dropped.
Knows the offered names, but not whether a call's arguments fit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from enum import Enum, auto

from emulator.reading.diagnostics import from_syntax_error
from emulator.reading.lexing import PythonScan
from emulator.reading.own_names import OwnNames
from emulator.reading.repairs import parse_repaired
from emulator.reading.rewrites import rewrite
from emulator.reading.statements import MAX_BLOCK, MAX_STATEMENTS, Statement, Unreadable, unreadable
from emulator.reading.tool_names import ToolNames

#: Words that continue the previous compound statement.
_CONTINUES = re.compile(r"(?:else|elif|except|finally)\b")
_COMPOUND = re.compile(r"(?:if|for|while|try|with|def|class|async|match)\b|@")
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)|(?:In ?\[\d+\]: |\.\.\.: )")

_WORD = r"[^\W\d_][\w'’-]*"
#: Three plain words in a row, possibly after a bullet: not Python unless the first is a keyword.
_PROSE = re.compile(rf"(?:[-*•>]\s+|\d+[.)]\s+|#+\s+)?{_WORD}[,;:]? {_WORD}[,;:]? {_WORD}")
#: "Done!", "Output:", "Expected output:"
_REMARK = re.compile(rf"{_WORD}(?: {_WORD})*[.!:]+")
_KEYWORDS = frozenset(
    "if for while try with def class async match return import from print raise assert del "
    "global nonlocal lambda not yield await else elif except finally const let var".split()
)


def is_prose_line(line: str) -> bool:
    """Return True if a line that is not valid Python is a sentence rather than a mistake."""
    text = line.strip()
    if not (_PROSE.match(text) or _REMARK.fullmatch(text)):
        return False
    return text.split(maxsplit=1)[0].rstrip(",;:") not in _KEYWORDS


class _Line(Enum):
    """What a physical line means for the statement that is being collected."""

    CONTINUES = auto()
    BEGINS = auto()
    NOTHING = auto()


class PythonReader:
    """See `readers.Reader`. Returns nothing after a fault, because the order of statements
    matters.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = ToolNames.of(names)
        self.own_names = OwnNames(self._names)
        self._partial: list[str] = []  # pieces of the unfinished line
        self._lines: list[str] = []  # of the unfinished statement
        self._decorating = False  # that statement consists only of decorators so far
        self._scan = PythonScan()
        self._first = 1  # the line in which that statement begins
        self._line = 0  # 1-based number of the last whole line
        self._size = 0
        self._count = 0  # statements so far
        self._margin: str | None = None  # indentation of the whole block
        self._doctest = False
        self._fault: Unreadable | None = None

    def feed(self, text: str) -> list[Statement]:
        self._size += len(text)
        if self._fault is None and self._size > MAX_BLOCK:
            self._fault = unreadable(f"the code is longer than {MAX_BLOCK} characters")
        if self._fault is not None:
            return []
        found: list[Statement] = []
        *whole, rest = text.split("\n")
        for part in whole:
            line = "".join([*self._partial, part])
            self._partial.clear()
            found += self._take(line.removesuffix("\r") + "\n")
        if rest:
            self._partial.append(rest)
        return found

    def close(self) -> list[Statement]:
        found: list[Statement] = []
        if self._fault is None and self._partial:
            line = "".join(self._partial)
            self._partial.clear()
            found += self._take(line)
        if self._fault is None:
            found += self._flush(last=True)
        if self._fault is not None:
            raise self._fault
        return found

    @property
    def _broken(self) -> bool:
        return self._fault is not None

    # -- lines

    def _take(self, line: str) -> list[Statement]:
        self._line += 1
        if self._fault is not None:
            return []
        if not self._scan.open:
            line = self._strip_prompt(line)
            if self._margin is None and line.strip():
                self._margin = line[: len(line) - len(line.lstrip())]
        line = line.removeprefix(self._margin or "")
        kind = self._kind(line)
        found: list[Statement] = []
        if kind is _Line.BEGINS:
            found = self._flush()
            if self._broken or self._is_prose(line):
                return found
            self._first = self._line
        elif kind is _Line.NOTHING and not self._lines:
            return []
        if not self._scan.open and line.strip() and line[0] not in " \t#":
            self._decorating = line.startswith("@") and (self._decorating or not self._lines)
        self._lines.append(line)
        self._scan.feed(line)
        if not self._scan.open and not _COMPOUND.match(self._lines[0]):
            found += self._flush()
        return found

    def _strip_prompt(self, line: str) -> str:
        match = _PROMPT.match(line.lstrip())
        # "..." alone may also be the body of a function.
        if match is not None and (self._doctest or not match.group().startswith("...")):
            self._doctest = True
            return line.lstrip()[match.end() :] or "\n"
        # In a session, a line without a prompt is output of the code.
        return "\n" if self._doctest else line

    def _kind(self, line: str) -> _Line:
        if self._scan.open:
            return _Line.CONTINUES
        if not line.strip() or line.lstrip().startswith("#"):
            return _Line.NOTHING
        if self._lines and (line[0] in " \t" or _CONTINUES.match(line)):
            return _Line.CONTINUES
        if self._lines and self._decorating:
            return _Line.CONTINUES
        return _Line.BEGINS

    def _is_prose(self, line: str) -> bool:
        # Tested before quotes and brackets are tracked: prose has apostrophes that nothing closes.
        if not is_prose_line(line):
            return False
        try:
            parse_repaired(line, self._names)
        except SyntaxError:
            return True
        return False

    # -- statements

    def _flush(self, *, last: bool = False) -> list[Statement]:
        """Parse the collected lines as one or more complete statements."""
        source = "".join(self._lines)
        missing = self._scan.missing if last and not self._scan.quote else ""
        self._lines = []
        self._decorating = False
        self._scan = PythonScan()
        if not source.strip():
            return []
        try:
            tree, text = self._parse(source, missing)
            self._count += len(tree.body)
            self.own_names.feed(tree)
            if self._count > MAX_STATEMENTS:
                raise SyntaxError(f"more than {MAX_STATEMENTS} statements")
            lines = text.encode(errors="surrogatepass").splitlines(keepends=True)
            return [
                Statement(
                    ast.unparse(piece.node) if piece.changed else _slice(lines, piece.node),
                    self._first + piece.line - 1,
                    source,
                    None if piece.changed else piece.node,
                )
                for piece in rewrite(tree, self._names)
            ]
        except SyntaxError as error:
            self._fault = Unreadable([from_syntax_error(error, source, self._first)])
        except (RecursionError, MemoryError):
            self._fault = unreadable("the code is nested too deep", line=self._first)
        return []

    def _parse(self, source: str, missing: str) -> tuple[ast.Module, str]:
        try:
            return parse_repaired(source, self._names)
        except SyntaxError as error:
            # Add brackets only after a complete value: then no truncated value is taken for a whole one.
            if not missing or source.rstrip()[-1] not in "\"')]}":
                raise
            try:
                return parse_repaired(source.rstrip() + missing, self._names)
            except SyntaxError:
                raise error from None


def _slice(lines: list[bytes], node: ast.stmt) -> str:
    """Return the statement as written. (`ast.get_source_segment` would split all lines again.)"""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) - 1
    last = (node.end_lineno or node.lineno) - 1
    part = lines[first : last + 1]
    part[-1] = part[-1][: node.end_col_offset]
    if first == node.lineno - 1:
        part[0] = part[0][node.col_offset :]
    return b"".join(part).decode(errors="surrogatepass")
