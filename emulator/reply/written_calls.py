"""Find a call in a text, whatever syntax the text writes it in.

A text contains a call if it has the name and then each argument's value, in any order, with nothing but
syntax and the names of parameters between them, up to something that closes the call. Case, quotes and white
space do not count, and numbers compare by value; a value alone, or a name in a sentence, is no call. Knows no
tools and no messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from emulator.core.cached_property import cached_property
from emulator.reading.statements import Statement
from sandbox.parsing import parse, walk

Words = tuple[str | float, ...]

_WORD = re.compile(r"[^\W_]+")
_SYNTAX = frozenset(
    "action analysis arg args argument arguments begin call channel commentary false function functions id"
    " index input inputs invoke json key kwargs message name number object param parameter parameters params"
    " string tool true type value".split()
)
"""Words that calls of any syntax may have between the name and the last value."""
_SPELLINGS = {"null": "none"}
_NUMBER = re.compile(
    r"(?:\d{1,400}(?:_\d{1,400}){0,99}(?:\.\d{1,400})?|\.\d{1,400})(?:e[+-]?\d{1,4})?(?!\w)"
)
_MAX_NUMBER = 1e300
"""A larger number is compared as text. Signs do not count."""
_NUMBERED = re.compile(r"(?:id|index)\W{1,4}[\"']?\w{1,40}")
_TAG = re.compile(r"<[^<>{\n]{1,200}>")
_TAG_BEFORE = 60
_MAX_SKIPPED = 12
_GAP = 400
"""Characters between two words of a call."""
_MAX_VALUES, _MAX__WORD = 50, 200
_OPENS = re.compile(r"[({\[<>:=]")
_CLOSES = re.compile(r"[)}\]<]")
_EMPTY = re.compile(r"[({<>].*?[)}\]<]|/>", re.DOTALL)
_NOT_BEFORE = re.compile(
    r"\w\Z|\b(?:def|func|fn|class|function)\s+\Z"
    r"|(?<!\bfunctions)(?<!\btools)(?<!\btool)(?<!\bdefault_api)(?<!\bapi)(?<=\w)\.\Z"
)
"""The rest of a word, a definition, or an object whose method this is."""


@dataclass(frozen=True)
class WrittenCall:
    """A call whose arguments are literals; positional arguments have no parameter name here."""

    name: str
    values: tuple[Any, ...]

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Equal for calls that differ in syntax, the order of arguments, or coerced types."""
        return (self.name, *sorted(str(value) for value in self.values))

    def candidates(
        self, text: str, spelling: str, parameters: Collection[str], *, unfinished: bool
    ) -> Iterator[bool]:
        """Look at each place where ``text`` (in lower case) has the name in this spelling: yield whether
        the whole call follows.

        ``parameters`` are the names of the tool's parameters. ``unfinished``: the last value goes on.
        """
        name = _WORD.findall(spelling.casefold())
        if not name or name[0] not in text:
            return
        values = [_words(value) for value in self.values]
        if unfinished and values:
            values[-1] = values[-1][:-1]  # the last word may be incomplete
        # A quotation of the beginning of so long a call is one of the call.
        unfinished |= len(values) > _MAX_VALUES or any(len(words) > _MAX__WORD for words in values)
        values = [words[:_MAX__WORD] for words in values[:_MAX_VALUES]]
        between = _SYNTAX.union(name, *(_WORD.findall(one.casefold()) for one in parameters))
        pattern = re.compile(name_pattern(spelling) + r"(?!\w)(?::\d{1,4})?")
        at = text.find(name[0])
        while at >= 0:
            match = pattern.match(text, at)
            if match and not _NOT_BEFORE.search(text, max(0, at - 20), at):
                yield _follow(text, match.end(), values, between, unfinished)
            at = text.find(name[0], at + 1)


def name_pattern(spelling: str) -> str:
    """A pattern of a name in lower case, whatever is between its words."""
    return r"[\W_]{0,3}".join(map(re.escape, _WORD.findall(spelling.casefold())))


def _follow(
    text: str, at: int, values: list[Words], between: Collection[str], unfinished: bool
) -> bool:
    """Return True if a call's values follow its name, which ends at ``at``."""
    remaining = sorted(filter(None, values), key=len, reverse=True)
    without_words, opened, skipped = not remaining, False, 0
    while True:
        word = _WORD.search(text, at)
        gap = text[at : min(word.start() if word else len(text), at + _GAP)]
        if not remaining:
            closed = unfinished or _is_closed(gap, word is None, without_words)
            if closed or not without_words:
                return closed and (opened or without_words)
        if word is None:
            return False
        opened = opened or _OPENS.search(gap) is not None
        ends = ((value, _words_end(text, word.start(), value)) for value in remaining)
        found = next(((value, end) for value, end in ends if end), None)
        if found is not None:
            remaining.remove(found[0])
            at, skipped = found[1], 0
        elif skipped < _MAX_SKIPPED and (end := _syntax_end(text, word, between)):
            # ``id="eve"`` may be the number of the call, or an argument.
            is_argument = any(_words_end(text, _next_word(text, word.end()), v) for v in remaining)
            at, skipped = word.end() if is_argument else end, skipped + 1
        else:
            return False


def _next_word(text: str, at: int) -> int:
    word = _WORD.search(text, at)
    return word.start() if word else len(text)


def _syntax_end(text: str, word: re.Match[str], between: Collection[str]) -> int:
    """The index after a word, or the tag around it, if it is part of a call's syntax; otherwise 0."""
    start = text.rfind("<", max(0, word.start() - _TAG_BEFORE), word.start())
    tag = _TAG.match(text, start) if start >= 0 else None
    if tag is not None and tag.end() >= word.end():
        return tag.end() - 1  # the bracket closes a value
    if word.group() not in between:
        return 0
    numbered = _NUMBERED.match(text, word.start())
    return (numbered or word).end()


def _is_closed(gap: str, at_end: bool, without_words: bool) -> bool:
    if without_words:
        return _EMPTY.search(gap) is not None
    return at_end or _CLOSES.search(gap) is not None or ("\n" in gap and "," not in gap)


def _words_end(text: str, at: int, words: Words) -> int:
    """The index after ``words`` if they are the next words of ``text``, otherwise 0."""
    for expected in words:
        word = _WORD.search(text, at)
        if word is None:
            return 0
        if isinstance(expected, float):
            has_point = word.start() > at and text[word.start() - 1] == "."
            found = _NUMBER.match(text, word.start() - has_point)
            if found is None or float(found[0]) != expected:
                return 0
            at = found.end()
        elif _SPELLINGS.get(word.group(), word.group()) == expected:
            at = word.end()
        else:
            return 0
    return at


def _words(value: Any) -> Words:
    """The words of a value in the order in which every syntax writes them."""
    match value:
        case dict():
            return tuple(w for key, item in value.items() for w in _words(key) + _words(item))
        case list() | tuple() | set():
            return tuple(word for item in value for word in _words(item))
        case None:
            return ("none",)
        case int() | float() if not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            return (abs(float(value)),)
    return tuple(_WORD.findall(str(value).casefold()))


def written_calls(code: Statement | str, names: Collection[str]) -> list[WrittenCall | None]:
    """The calls of ``names`` in Python code; None for a call whose arguments are not all literals."""
    statement = Statement(code, 1) if isinstance(code, str) else code
    if (call := statement.call) is not None:
        values = (*call.args, *call.kwargs.values())
        return [WrittenCall(call.name, values)] if call.name in names else []
    try:
        tree = statement.tree or parse(statement.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        _read(node, node.func.id)
        for node in walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def _read(call: ast.Call, name: str) -> WrittenCall | None:
    try:
        values = [ast.literal_eval(argument) for argument in call.args]
        for keyword in call.keywords:
            value = ast.literal_eval(keyword.value)
            values += [value] if keyword.arg else value.values()
    except (ValueError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError):
        return None
    return WrittenCall(name, tuple(values))
