"""JSON as models write it: comments, trailing commas, Python's constants and quotes, missing
brackets.

`values` finds the values in a text and skips everything around them. Only brackets after a complete
value are added. Knows nothing of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator.reading.calls import JSON, loads
from emulator.reading.lexing import JsonScan, outside_strings_only
from emulator.reading.repairs import Repair, repaired_texts, straight_quotes
from emulator.reading.statements import Unreadable, unreadable
from sandbox.parsing import literal

#: `json` and `repr` recurse; no real call is nested this deep.
MAX_NESTING = 100


@dataclass(frozen=True)
class Value:
    """A bracketed value; `line` is 1-based, `end` is the index after it."""

    value: JSON
    line: int
    end: int


def values(text: str, *, first: bool = False, at: int = 0, line: int = 1) -> Iterator[Value]:
    """Yield the bracketed values in `text` from `at` on, in order; with `first`, only the first.

    `line` is the line number of the index `at`. Raises Unreadable.
    """
    counted = at
    while (opening := _OPENING.search(text, at)) is not None:
        start = opening.start()
        line += text.count("\n", counted, start)
        counted = start
        scan = JsonScan()
        end = scan.feed(text, start)
        if scan.deepest > MAX_NESTING:
            raise unreadable(f"JSON nested more than {MAX_NESTING} deep", line=line)
        if end is None:
            yield Value(_complete(text[start:], scan, line), line, len(text))
            return
        yield Value(parse(text[start:end], line), line, end)
        if first:
            return
        at = end


_OPENING = re.compile(r"[{\[]")


def objects(text: str) -> list[Value]:
    """Return the objects in `text` that are in no other value.

    A value that cannot be read is skipped: words may have brackets, too. Raises Unreadable if the text
    has no object, but what begins like one.
    """
    found: list[Value] = []
    problem: Unreadable | None = None
    at = end = 0
    line = 1
    while (opening := _OPENING.search(text, end)) is not None:
        line += text.count("\n", at, opening.start())
        at = opening.start()
        try:
            value = next(values(text, first=True, at=at, line=line))
        except Unreadable as error:
            end = JsonScan().feed(text, at) or len(text)
            if _MEMBER.match(text, at):
                problem = problem or error
        else:
            end = value.end
            if isinstance(value.value, dict):
                found.append(value)
    if problem is not None and not found:
        raise problem
    return found


#: The start of an object with a member.
_MEMBER = re.compile(r"""\{\s*(?:["']|[^\W\d]\w*\s*:)""")


def _complete(text: str, scan: JsonScan, line: int) -> JSON:
    body = text.rstrip().removesuffix("```").rstrip()
    if scan.quote or not _WHOLE.search(body):
        last = body.rsplit("\n", 1)[-1]
        raise unreadable(
            "the JSON is cut off",
            line=line + body.count("\n"),
            column=len(last) + 1,
            source_line=last,
            hint="write the call again, complete",
        )
    return parse(body + scan.missing, line)


#: Endings of a complete value. A number or another bare word may be truncated.
_WHOLE = re.compile(r"[\"'}\]]\Z|\b(?:true|false|null|True|False|None)\Z")


_PYTHON_TO_JSON = {"True": "true", "False": "false", "None": "null"}
_JSON_TO_PYTHON = {json_word: word for word, json_word in _PYTHON_TO_JSON.items()}


def _words(table: dict[str, str]) -> Callable[[str], str]:
    pattern = re.compile(rf"\b(?:{'|'.join(table)})\b")
    return outside_strings_only(lambda text: pattern.sub(lambda match: table[match.group()], text))


_STRING_OR_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\#[^\n]*|(?<!:)//[^\n]*|/\*.*?\*/""", re.DOTALL
)


def _without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)


REPAIRS: tuple[Repair, ...] = (
    Repair("typographic quotes", straight_quotes),
    Repair("comments", _without_comments),
    Repair(
        "a comma after the last item",
        outside_strings_only(lambda t: re.sub(r",(?=\s*[}\]])", "", t)),
    ),
    Repair("Python's True, False and None", _words(_PYTHON_TO_JSON)),
    Repair(
        "keys without quotes",
        outside_strings_only(lambda t: re.sub(r"([{,]\s*)([^\W\d]\w*)(?=\s*:)", r'\1"\2"', t)),
    ),
)


def parse(text: str, line: int = 1) -> JSON:
    """Parse one value. Raises Unreadable, with the error that the original text caused."""
    complaint: ValueError | None = None
    for repaired in repaired_texts(text, REPAIRS):
        try:
            return loads(repaired)
        except RecursionError:
            raise unreadable("JSON nested too deep", line=line) from None
        except ValueError as error:
            complaint = complaint or error
    try:  # single quotes, triple quotes, implicit concatenation: a Python literal
        value = literal(_words(_JSON_TO_PYTHON)(repaired))
        json.dumps(value, allow_nan=False)
        return loads(json.dumps(value)) if isinstance(value, (dict, list)) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        pass
    if isinstance(complaint, json.JSONDecodeError):
        row, column = complaint.lineno, complaint.colno
        message = complaint.msg[:1].lower() + complaint.msg[1:]
    else:
        row, column, message = 1, 0, str(complaint)
    raise unreadable(
        f"invalid JSON: {message}",
        line=line + row - 1,
        column=column,
        source_line=text.split("\n")[row - 1],
        hint='write {"name": "function", "arguments": {"argument": value}}',
    )
