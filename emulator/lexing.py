"""Where a piece of Python or JSON stands: how many brackets are open, in which string, in a comment.

Two small scanners that never fail, whatever they are fed, in time linear in the text. They know
brackets, quotes and comments only; whether the text is valid is for a parser to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPENING, _CLOSING = "([{", ")]}"

_CODE = re.compile(r"\"\"\"|'''|`{3,}|[\"'“‘#()\[\]{}\n\\]")
#: What ends a string, by what began it. Typographic quotes are no Python, but models write them.
_STRINGS = {
    '"""': ('"""', re.compile(r'\\.|"""', re.DOTALL)),
    "'''": ("'''", re.compile(r"\\.|'''", re.DOTALL)),
    '"': ('"', re.compile(r'\\.|["\n]', re.DOTALL)),
    "'": ("'", re.compile(r"\\.|['\n]", re.DOTALL)),
    "“": ("”", re.compile(r"\\.|[“”\n]", re.DOTALL)),
    "‘": ("’", re.compile(r"\\.|[‘’\n]", re.DOTALL)),
}


@dataclass
class PythonScan:
    """Fed whole lines. `open` says that the logical line goes on after the last newline."""

    brackets: list[str] = field(default_factory=list)
    deepest: int = 0
    quote: str = ""
    continued: bool = False

    @property
    def open(self) -> bool:
        return bool(self.brackets or self.quote or self.continued)

    @property
    def missing(self) -> str:
        """The brackets that would close what is open."""
        return "".join(_CLOSING[_OPENING.index(bracket)] for bracket in reversed(self.brackets))

    def feed(self, text: str, *, fence: int = 0) -> int | None:
        """Move over `text`.

        With `fence`: stop at a run of that many backticks or more outside of strings and comments
        (never valid Python) and return where it begins; what follows is not scanned.
        """
        at = 0
        self.continued = False
        while at < len(text):
            at, found = self._string(text, at) if self.quote else self._code(text, at, fence)
            if found is not None:
                return found
        return None

    def _string(self, text: str, at: int) -> tuple[int, None]:
        match = _STRINGS[self.quote][1].search(text, at)
        if match is None:
            return len(text), None
        if match.group()[0] != "\\":
            self.quote = ""
            if match.group() == "\n":
                return match.start(), None
        return match.end(), None

    def _code(self, text: str, at: int, fence: int) -> tuple[int, int | None]:
        match = _CODE.search(text, at)
        if match is None:
            return len(text), None
        token = match.group()
        if token in _STRINGS:
            self.quote = token
        elif token in _OPENING:
            self.brackets.append(token)
            self.deepest = max(self.deepest, len(self.brackets))
        elif token in _CLOSING:
            del self.brackets[-1:]
        elif token == "#":
            end = text.find("\n", at)
            return (len(text) if end < 0 else end), None
        elif token == "\\":
            self.continued = text[match.end() : match.end() + 2] in ("\n", "\r\n")
        elif token[0] == "`" and fence and len(token) >= fence:
            return match.start(), match.start()
        return match.end(), None


def outside_strings(source: str) -> list[tuple[bool, str]]:
    """`source` cut into pieces, each with whether it is code (True) or string or comment."""
    pieces: list[tuple[bool, str]] = []
    scan = PythonScan()
    at = start = 0

    def cut(code: bool, end: int) -> None:
        nonlocal start
        if end > start:
            pieces.append((code, source[start:end]))
        start = end

    while at < len(source):
        if scan.quote:
            opened = scan.quote
            at, _ = scan._string(source, at)
            if scan.quote != opened:
                cut(False, at)
            continue
        match = _CODE.search(source, at)
        if match is None:
            break
        if match.group() in _STRINGS or match.group() == "#":
            cut(True, match.start())
        comment = match.group() == "#"
        at, _ = scan._code(source, at, 0)
        if comment:
            at = source.find("\n", match.start())
            at = len(source) if at < 0 else at
            cut(False, at)
    cut(not scan.quote, len(source))
    return pieces


_JSON = re.compile(r"[\"'{}\[\]]")
_JSON_STRINGS = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


@dataclass
class JsonScan:
    """Fed pieces cut anywhere; says where the first bracketed value ends.

    Reads single-quoted strings too: models write Python dicts for JSON.
    """

    brackets: list[str] = field(default_factory=list)
    deepest: int = 0
    quote: str = ""
    escaped: bool = False

    @property
    def missing(self) -> str:
        """The brackets that would close what is open."""
        return "".join(_CLOSING[_OPENING.index(bracket)] for bracket in reversed(self.brackets))

    def feed(self, text: str, at: int = 0) -> int | None:
        """Move over `text` from `at`; return the place after the value's last bracket, if there."""
        while at < len(text):
            if self.escaped:
                self.escaped = False
                at += 1
                continue
            match = (_JSON_STRINGS[self.quote] if self.quote else _JSON).search(text, at)
            if match is None:
                return None
            token, at = match.group(), match.end()
            if token == "\\":
                self.escaped = True
            elif self.quote:
                self.quote = ""
            elif token in _JSON_STRINGS:
                self.quote = token
            elif token in _OPENING:
                self.brackets.append(token)
                self.deepest = max(self.deepest, len(self.brackets))
            else:
                del self.brackets[-1:]
                if not self.brackets:
                    return at
        return None
