"""Repairs of a program's text: a table of changes, tried only while the text does not parse.

Knows the offered names; knows nothing of blocks or streaming. No repair guesses a value: it changes
how a call is spelt, never what is called or with what arguments.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from emulator.reading.lexing import outside_strings_only, split_strings
from emulator.reading.python_syntax import parse
from emulator.reading.tool_names import ToolNames


@dataclass(frozen=True)
class Repair:
    """A change of text, tried only while the text does not parse."""

    why: str
    apply: Callable[[str], str]


_TYPOGRAPHIC = re.compile(r"“([^“”\n]*)”|‘([^‘’\n]*)’|[“”„«»]|[‘’‚]")


def straight_quotes(source: str) -> str:
    """Replace typographic quotes that delimit a string; those inside plain strings stay."""

    def straight(match: re.Match[str]) -> str:
        text = match.group(1) if match.group(1) is not None else match.group(2)
        if text is None:
            return '"' if match.group() in "“”„«»" else "'"
        # A plain quote of the same kind inside the text would end the string.
        return repr(text) if '"' in text or "'" in text else f'"{text}"'

    pieces = split_strings(source)
    return "".join(
        _TYPOGRAPHIC.sub(straight, text) if code or text[:1] in "“‘" else text
        for code, text in pieces
    )


def _without_escapes(source: str) -> str:
    """Remove Markdown's backslashes. A model that escapes names escapes its strings as well."""
    if not any(code and re.search(r"\\[_*\[\]()]", text) for code, text in split_strings(source)):
        return source
    return re.sub(r"\\([_*\[\]()])", r"\1", source)


_QUOTED_CALL = re.compile(r"""\s*(["'`])(?P<call>[^\W\d][\w.]*\(.*\))\1[;,]?\s*\Z""", re.DOTALL)


_QUOTED_CALLS = re.compile(
    r"""\s*\[\s*(["'])(?P<calls>[^\W\d][\w.]*\(.*\))\1?\s*\]\1?\s*\Z""", re.DOTALL
)
_BETWEEN_QUOTED = re.compile(r"""\)(["'])\s*,\s*\1(?=[^\W\d][\w.]*\()""")


def _unquote(source: str) -> str:
    if match := _QUOTED_CALL.match(source):
        return match["call"]
    match = _QUOTED_CALLS.match(source)
    return f"[{_BETWEEN_QUOTED.sub('), ', match['calls'])}]" if match else source


_COLON = re.compile(
    r"(?<=[(,])(\s*[^\W\d]\w*)\s*:(?=\s*(?:[\d\[{-]|(?:true|false|null|True|False|None)\b|\Z))"
)


def _equals_signs(source: str) -> str:
    """Replace the colon between an argument's name and a literal. Anything else may be a signature."""
    changed = outside_strings_only(lambda t: _COLON.sub(r"\1=", t))(source)
    try:
        keywords = [node for node in ast.walk(parse(changed)) if isinstance(node, ast.keyword)]
        for keyword in keywords:
            ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return source
    return changed


REPAIRS: tuple[Repair, ...] = (
    Repair(
        "no-break and zero-width spaces from chat interfaces",
        outside_strings_only(
            lambda t: re.sub("[\u200b\u200c\u200d\u2060\ufeff]", "", t.replace("\xa0", " "))
        ),
    ),
    Repair("Markdown's escapes: get\\_weather(...)", _without_escapes),
    Repair("typographic quotes around strings", straight_quotes),
    Repair("HTML entities from an XML frame: &quot;Oslo&quot;", html.unescape),
    Repair('calls in quotes with the same quotes inside: "f("Oslo")", ["f("Oslo")"]', _unquote),
    Repair('colons before values, as in Ruby and Swift: f(city: "Oslo")', _equals_signs),
    Repair(
        "a JavaScript declaration",
        lambda t: re.sub(r"^(\s*)(?:const|let|var)\s+(?=[\w, ]+=)", r"\1", t),
    ),
)


def repaired_texts(source: str, repairs: Iterable[Repair]) -> Iterator[str]:
    """Yield `source`, then the text after each of the repairs that changes it."""
    yield source
    for repair in repairs:
        changed = repair.apply(source)
        if changed != source:
            source = changed
            yield source


def parse_repaired(source: str, names: ToolNames) -> tuple[ast.Module, str]:
    """Return the tree and the text of `source`, repaired only as far as needed.

    Raises the SyntaxError of the original text.
    """
    first: SyntaxError | None = None
    for text in repaired_texts(source, REPAIRS):
        spelt = names.respell(text)
        try:
            return parse(spelt), spelt
        except SyntaxError as error:
            first = first or error
    assert first is not None
    raise first
