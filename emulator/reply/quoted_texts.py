"""Find what the author of a message only passes on: fences, lines after ``>``, JSON, quotation marks.

What stands outside of them is the author's own. The time is linear in the text. Knows nothing of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t>]{0,40}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_LINES = re.compile(r"(?:^[ \t]{0,40}>[^\n]*\n?)+", re.MULTILINE)
_JSON = re.compile(r"""\{\s{0,200}["']|\[\s{0,200}[\[{"']""")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"(?<![\w=\\])[\"'‘](?=\S)|[“„«‹「『]")
_STRAIGHT = r"(?<![\s(=\[{{,:]){}(?!\w)"
_CLOSING = {
    '"': re.compile(_STRAIGHT.format('"')),
    "'": re.compile(_STRAIGHT.format("'") + r"|\n"),  # it is an apostrophe, too
    "‘": re.compile(_STRAIGHT.format("’") + r"|\n"),
    "“": re.compile("”"),
    "„": re.compile("[“”]"),
    "«": re.compile("»"),
    "‹": re.compile("›"),
    "「": re.compile("」"),
    "『": re.compile("』"),
}


def quoted_texts(text: str) -> Iterator[str]:
    """Yield the quoted parts of a message; one may lie within another."""
    yield from _fenced(text)
    for lines in _LINES.finditer(text):
        yield lines[0]
    yield from _objects(text)
    yield from _between_marks(text)


def _fenced(text: str) -> Iterator[str]:
    opening: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opening is None and "`" in line[2]:
            yield line[2]  # all on one line
        elif opening is None:
            opening = line
        elif line[1].startswith(opening[1]) and not line[2].strip():
            yield text[opening.start(2) : line.start()]
            opening = None
    if opening is not None:
        yield text[opening.start(2) :]


def _objects(text: str) -> Iterator[str]:
    """JSON objects and arrays, and Python's; one that nothing closes lasts to the end."""
    at = 0
    while start := _JSON.search(text, at):
        depth, at = 0, len(text)
        for token in _JSON_TOKEN.finditer(text, start.start()):
            depth += (token[0] in "{[") - (token[0] in "}]")
            if depth == 0:
                at = token.end()
                break
        yield text[start.start() : at]


def _between_marks(text: str) -> Iterator[str]:
    at = 0
    unclosed_to = dict.fromkeys(_CLOSING, 0)  # the index up to which nothing closes such a mark
    while opening := _OPENING.search(text, at):
        at, mark = opening.end(), opening[0]
        if at <= unclosed_to[mark]:
            continue
        closing = _CLOSING[mark].search(text, at)
        if closing is None or closing[0] == "\n":
            unclosed_to[mark] = closing.end() if closing else len(text)
        else:
            yield text[at : closing.start()]
            at = closing.end()
