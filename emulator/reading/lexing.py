"""Where a piece of Python or JSON stands: which brackets are open, in which string, in a comment.

Two small scanners that never fail, whatever they are fed, in time linear in the text. They know
brackets, quotes and comments only; whether the text is valid is for a parser to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_OPENING, _CLOSING = "([{", ")]}"

_CODE = re.compile(r"\"\"\"|'''|`{3,}|[\"'“‘#()\[\]{}\n\\]")
#: What ends a string, by what began it. Typographic quotes are no Python, but models write them.
_STRINGS = {
    '"""': re.compile(r'\\.|"""', re.DOTALL),
    "'''": re.compile(r"\\.|'''", re.DOTALL),
    '"': re.compile(r'\\.|["\n]', re.DOTALL),
    "'": re.compile(r"\\.|['\n]", re.DOTALL),
    "“": re.compile(r"\\.|[“”\n]", re.DOTALL),
    "‘": re.compile(r"\\.|[‘’\n]", re.DOTALL),
}


@dataclass
class _Scan:
    brackets: list[str] = field(default_factory=list)
    deepest: int = 0
    quote: str = ""

    @property
    def missing(self) -> str:
        """The brackets that would close what is open."""
        return "".join(_CLOSING[_OPENING.index(bracket)] for bracket in reversed(self.brackets))

    def _bracket(self, bracket: str) -> None:
        if bracket in _OPENING:
            self.brackets.append(bracket)
            self.deepest = max(self.deepest, len(self.brackets))
        else:
            del self.brackets[-1:]


@dataclass
class PythonScan(_Scan):
    """Fed whole lines. `open` says that the logical line goes on after the last newline."""

    continued: bool = False

    @property
    def open(self) -> bool:
        return bool(self.brackets or self.quote or self.continued)

    def feed(self, text: str, *, fence: int = 0) -> int | None:
        """Move over `text`.

        With `fence`: stop at a run of that many backticks or more outside of strings and comments
        (never valid Python) and return where it begins; what follows is not scanned.
        """
        at = 0
        self.continued = False
        while at < len(text):
            start, at = self.step(text, at)
            if fence and at - start >= fence and text.startswith("`", start):
                return start
        return None

    def step(self, text: str, at: int) -> tuple[int, int]:
        """Move over what comes next from `at` on; return where it begins and ends.

        That is a quote, a bracket, a comment, or an escape in a string.
        """
        match = (_STRINGS[self.quote] if self.quote else _CODE).search(text, at)
        if match is None:
            return len(text), len(text)
        found = match.group()
        if self.quote:
            if found[0] != "\\":
                self.quote = ""
            # The line end after an unclosed string belongs to the code.
            return match.start(), match.start() if found == "\n" else match.end()
        if found in _STRINGS:
            self.quote = found
        elif found in _OPENING + _CLOSING:
            self._bracket(found)
        elif found == "\\":
            self.continued = text[match.end() : match.end() + 2] in ("\n", "\r\n")
        elif found == "#":
            end = text.find("\n", match.end())
            return match.start(), len(text) if end < 0 else end
        return match.span()


def outside_strings(source: str) -> list[tuple[bool, str]]:
    """`source` cut into pieces, each with whether it is code (True) or string or comment."""
    pieces: list[tuple[bool, str]] = []
    scan = PythonScan()
    at = begun = 0
    while at < len(source):
        quoted = scan.quote
        start, at = scan.step(source, at)
        if bool(quoted) == bool(scan.quote) and not source.startswith("#", start):
            continue
        if quoted:  # the string ends
            pieces.append((False, source[begun:at]))
        elif scan.quote:  # a string begins
            pieces.append((True, source[begun:start]))
            begun = start
            continue
        else:  # a comment
            pieces += [(True, source[begun:start]), (False, source[start:at])]
        begun = at
    pieces.append((not scan.quote, source[begun:]))
    return [piece for piece in pieces if piece[1]]


def in_code(change: Callable[[str], str]) -> Callable[[str], str]:
    """`change`, applied to the pieces of a source that are code."""
    return lambda source: "".join(
        change(piece) if code else piece for code, piece in outside_strings(source)
    )


_JSON = re.compile(r"[\"'{}\[\]]")
_CODE_TOO = re.compile(r"\"\"\"|\'\'\'|[\"'{}\[\]()]")
_JSON_STRINGS = {
    '"': re.compile(r'["\\]'),
    "'": re.compile(r"['\\]"),
    '"""': re.compile(r'"""|\\'),
    "'''": re.compile(r"'''|\\"),
}


@dataclass
class JsonScan(_Scan):
    """Fed pieces cut anywhere; says where the first bracketed value ends.

    Reads single-quoted strings too: models write Python dicts for JSON. With `code` also parentheses
    and triple quotes, which no cut may divide.
    """

    escaped: bool = False
    code: bool = False

    def feed(self, text: str, at: int = 0, stop: int | None = None) -> int | None:
        """Move over `text` from `at`; return the place after the value's last bracket, if there."""
        stop = len(text) if stop is None else min(stop, len(text))
        while at < stop:
            if self.escaped:
                self.escaped = False
                at += 1
                continue
            outside = _CODE_TOO if self.code else _JSON
            match = (_JSON_STRINGS[self.quote] if self.quote else outside).search(text, at, stop)
            if match is None:
                return None
            found, at = match.group(), match.end()
            if found == "\\":
                self.escaped = True
            elif self.quote:
                self.quote = ""
            elif found in _JSON_STRINGS:
                self.quote = found
            else:
                self._bracket(found)
                if not self.brackets:
                    return at
        return None
