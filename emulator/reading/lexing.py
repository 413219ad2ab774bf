"""Track which brackets, strings and comments are open in a piece of Python or JSON.

Two small scanners. They never fail, on any text, and take linear time. They know brackets, quotes
and comments only; a parser decides whether the text is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_OPENING, _CLOSING = "([{", ")]}"

_CODE = re.compile(r"\"\"\"|'''|`{3,}|[\"'“‘#()\[\]{}\n\\]")
#: Opening quote -> the end of the string. Typographic quotes are not valid Python, but models write them.
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
        """The brackets that would close the open ones."""
        return "".join(_CLOSING[_OPENING.index(bracket)] for bracket in reversed(self.brackets))

    def _bracket(self, bracket: str) -> None:
        if bracket in _OPENING:
            self.brackets.append(bracket)
            self.deepest = max(self.deepest, len(self.brackets))
        else:
            del self.brackets[-1:]


@dataclass
class PythonScan(_Scan):
    """Takes whole lines. `open` is True if the logical line continues after the last newline."""

    continued: bool = False

    @property
    def open(self) -> bool:
        return bool(self.brackets or self.quote or self.continued)

    def feed(self, text: str, *, fence: int = 0) -> int | None:
        """Scan `text`.

        With `fence`: stop at a run of at least that many backticks outside strings and comments
        (never valid Python) and return its index. The text after it is not scanned.
        """
        at = 0
        self.continued = False
        while at < len(text):
            start, at = self.step(text, at)
            if fence and at - start >= fence and text.startswith("`", start):
                return start
        return None

    def step(self, text: str, at: int) -> tuple[int, int]:
        """Move from `at` past the next quote, bracket, comment or escape in a string. Returns its
        start and end.
        """
        match = (_STRINGS[self.quote] if self.quote else _CODE).search(text, at)
        if match is None:
            return len(text), len(text)
        found = match.group()
        if self.quote:
            if found[0] != "\\":
                self.quote = ""
            # The newline after an unclosed string belongs to the code.
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


def split_strings(source: str) -> list[tuple[bool, str]]:
    """Split `source` into pieces, each with True for code and False for a string or comment."""
    pieces: list[tuple[bool, str]] = []
    scan = PythonScan()
    at = piece_start = 0
    while at < len(source):
        quoted = scan.quote
        start, at = scan.step(source, at)
        if bool(quoted) == bool(scan.quote) and not source.startswith("#", start):
            continue
        if quoted:  # the string ends
            pieces.append((False, source[piece_start:at]))
        elif scan.quote:  # a string begins
            pieces.append((True, source[piece_start:start]))
            piece_start = start
            continue
        else:  # a comment
            pieces += [(True, source[piece_start:start]), (False, source[start:at])]
        piece_start = at
    pieces.append((not scan.quote, source[piece_start:]))
    return [piece for piece in pieces if piece[1]]


def outside_strings_only(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that applies `change` to the code of a source, but not to its strings and
    comments.
    """
    return lambda source: "".join(
        change(piece) if code else piece for code, piece in split_strings(source)
    )


_JSON = re.compile(r"[\"'{}\[\]]|(?<!:)/(?:[/*]|\Z)")
_CODE_TOO = re.compile(r"\"\"\"|\'\'\'|[\"'{}\[\]()]")
_JSON_STRINGS = {
    '"': re.compile(r'["\\]'),
    "'": re.compile(r"['\\]"),
    '"""': re.compile(r'"""|\\'),
    "'''": re.compile(r"'''|\\"),
    "//": re.compile(r"\n"),  # comments, which models write in JSON too
    "/*": re.compile(r"\*(?:/|\Z)"),
}


@dataclass
class JsonScan(_Scan):
    """Takes pieces cut anywhere; finds the end of the first bracketed value.

    Accepts single-quoted strings too, because models write Python dicts as JSON. With `code`, it
    also knows parentheses and triple quotes; then no cut may be inside a triple quote.
    """

    escaped: bool = False
    code: bool = False
    half: str = ""
    """A slash or an asterisk at the end of a piece: half of the mark of a comment."""

    def feed(self, text: str, at: int = 0, stop: int | None = None) -> int | None:
        """Scan `text` from `at` to `stop`. Returns the index after the value's last bracket, or
        None.
        """
        stop = len(text) if stop is None else min(stop, len(text))
        while at < stop:
            if self.half:
                mark, self.half = self.half + text[at], ""
                if mark in ("//", "/*", "*/"):
                    self.quote = "" if mark == "*/" else mark
                    at += 1
                    continue
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
            elif found in ("/", "*"):
                self.half = found
            elif self.quote:
                self.quote = ""
            elif found in _JSON_STRINGS:
                self.quote = found
            else:
                self._bracket(found)
                if not self.brackets:
                    return at
        return None
