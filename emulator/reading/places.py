"""Where in a block, as the model wrote it, a fault of the Python that was read from it stands.

A block in JSON, XML or another syntax is read into Python that the model never saw: what is told of a fault
shows the model's own lines. Knows nothing of tools.
"""

from __future__ import annotations

import re
from dataclasses import replace

from emulator.reading.diagnostics import Diagnostic

_NAMED = re.compile(
    r"argument \"(?P<argument>[^\"]{1,200})\"|\): (?P<path>[^\W\d][\w\-]{0,200})[.:\[]"
)
_CALLED = re.compile(r"[^\W\d][\w.\-]{0,200}")


def as_written(diagnostic: Diagnostic, text: str, line: int, *, sole: bool = True) -> Diagnostic:
    """``diagnostic`` with its place in ``text``; the call that it is about begins in ``line`` of that.

    Where other calls begin in that line too (not ``sole``), only a word that stands there once is marked.
    """
    start = _offset(text, line)
    for word in _words(diagnostic.message):
        sought = re.compile(rf"(?<![\w.\-]){re.escape(word)}(?![\w\-])")
        found = sought.search(text, start)
        if found is not None and (sole or not sought.search(text, found.end())):
            return _at(diagnostic, text, found.start())
    return _at(diagnostic, text, start, marked=False)


def _words(message: str) -> list[str]:
    """What to look for: the argument that the message names, else the function."""
    named = _NAMED.search(message)
    called = _CALLED.match(message)
    words = [named["argument"] or named["path"]] if named else []
    return [*words, called.group()] if called else words


def _offset(text: str, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
        if not at:
            return 0
    return at


def _at(diagnostic: Diagnostic, text: str, place: int, *, marked: bool = True) -> Diagnostic:
    begin = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return replace(
        diagnostic,
        line=text.count("\n", 0, place) + 1,
        column=place - begin + 1 if marked else 0,
        source_line=text[begin : end if end >= 0 else len(text)],
    )
