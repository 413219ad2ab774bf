"""Faults in a reply, in the words by which a model repairs its code: what is wrong, where, and what
to write.

The layout is rustc's, which models know well. Knows nothing of the code that found the fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

_WIDTH = 100

#: CPython's message -> what to write instead. The first match wins.
_HINTS: tuple[tuple[str, str], ...] = (
    (r"'(.)' was never closed", "close every opening bracket before the line ends"),
    (r"unmatched|does not match", "each closing bracket needs its opening one"),
    (r"unterminated triple-quoted", "close the text with the same three quotes"),
    (
        r"unterminated (f-)?string|EOL while",
        'close the quote; escape quotes inside the text, or use """ for text over several lines',
    ),
    (r"forgot a comma", "separate arguments with commas: name(a=1, b=2)"),
    (r"positional argument follows", "pass every argument by keyword: name(a=1, b=2)"),
    (r"expression cannot contain assignment", "write argument=value, with a plain argument name"),
    (r"leading zeros", "write the number without leading zeros, or as a string"),
    (r"invalid decimal literal", "quote values that are not plain numbers"),
    (r"unexpected indent|unindent", "start every statement at the beginning of its line"),
    (r"expected an indented block", "indent the body of the block by four spaces"),
    (r"invalid (non-printable )?character", "use plain ASCII quotes, operators and spaces"),
)
_USUAL_HINT = "write plain Python, one statement on a line: name(argument=value)"


@dataclass(frozen=True)
class Diagnostic:
    """One fault. `line` and `column` are 1-based; a `column` of 0 marks the whole line."""

    message: str
    line: int
    column: int
    source_line: str
    hint: str | None = None

    def render(self, source: str = "") -> str:
        """Return the fault as text with a caret. `source` supplies a missing source line."""
        text = self.source_line
        if not text and source:
            lines = source.splitlines()
            text = lines[self.line - 1] if 0 < self.line <= len(lines) else ""
        text, column = _window(text.expandtabs(1).rstrip("\r\n"), self.column)
        gutter = " " * len(str(self.line))
        out = [f"error: {self.message}", f"{gutter}--> line {self.line}"]
        if text:
            caret = " " * (column - 1) + "^" if column > 0 else "^" * min(len(text), _WIDTH)
            out += [f"{gutter} |", f"{self.line} | {text}", f"{gutter} | {caret}"]
        if self.hint:
            out.append(f"{gutter} = help: {self.hint}")
        return "\n".join(out)


def render(diagnostics: Iterable[Diagnostic], source: str = "") -> str:
    """Return all faults as text, separated by blank lines."""
    return "\n\n".join(diagnostic.render(source) for diagnostic in diagnostics)


def from_syntax_error(error: SyntaxError, source: str, first_line: int = 1) -> Diagnostic:
    """Convert CPython's error in `source`, which begins in line `first_line` of the block."""
    lines = source.splitlines() or [""]
    row = min(max(error.lineno or 1, 1), len(lines))
    message = re.sub(r" \((?:<|detected at line).*", "", error.msg)
    return Diagnostic(
        message=f"invalid Python: {message}" if message != "invalid syntax" else "invalid Python",
        line=first_line + row - 1,
        column=min(max(error.offset or 0, 0), len(lines[row - 1]) + 1),
        source_line=lines[row - 1],
        hint=next((hint for words, hint in _HINTS if re.search(words, message)), _USUAL_HINT),
    )


def _window(text: str, column: int) -> tuple[str, int]:
    """Cut a section around the column out of a very long line; return it and the column in it."""
    if len(text) <= _WIDTH:
        return text, column
    start = max(0, column - 1 - _WIDTH // 2)
    before, after = "..." if start else "", "..." if start + _WIDTH < len(text) else ""
    return f"{before}{text[start : start + _WIDTH]}{after}", column and column - start + len(before)


_NAMED_ARGUMENT = re.compile(
    r"argument \"(?P<argument>[^\"]{1,200})\"|\): (?P<path>[^\W\d][\w\-]{0,200})[.:\[]"
)
_CALLED_FUNCTION = re.compile(r"[^\W\d][\w.\-]{0,200}")


def locate(diagnostic: Diagnostic, text: str, line: int, *, sole: bool = True) -> Diagnostic:
    """Return ``diagnostic`` with its place in ``text``, a block in another syntax than Python.

    The model never saw the Python into which its block was read, so a fault is shown in the model's
    own lines. The call concerned begins in ``line`` of the block. If other calls begin in the same
    line (not ``sole``), only a word that occurs there once is marked.
    """
    start = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    for word in _words(diagnostic.message):
        sought = re.compile(rf"(?<![\w.\-]){re.escape(word)}(?![\w\-])")
        found = sought.search(text, start)
        if found is not None and (sole or not sought.search(text, found.end())):
            return _at(diagnostic, text, found.start())
    return _at(diagnostic, text, start, marked=False)


def _words(message: str) -> list[str]:
    """Return the words to search for: the argument that the message names, then the function."""
    named = _NAMED_ARGUMENT.search(message)
    called = _CALLED_FUNCTION.match(message)
    words = [named["argument"] or named["path"]] if named else []
    return [*words, called.group()] if called else words


def _at(diagnostic: Diagnostic, text: str, place: int, *, marked: bool = True) -> Diagnostic:
    begin = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return replace(
        diagnostic,
        line=text.count("\n", 0, place) + 1,
        column=place - begin + 1 if marked else 0,
        source_line=text[begin : end if end >= 0 else len(text)],
    )
