"""Find calls that a model copied from another author's text.

A call in a tool's result, or in a quoted part of another message (`quoted_texts`), may not be the model's own
intent: the author of a fetched web page, for example, must not call a tool by being quoted. What the user
writes outside quotations is the user's order.

* A quotation repeats the *call*, in any syntax (`written_calls`). A value alone, such as a word of the
  user's question, is no quotation. Code whose arguments are not literals is compared as text.
* A call that the model has made before is its own.
* What an MCP server says of its tools counts as its results do, for calls of any tool but its own.

A call that the model makes in its own words because a text told it to is not detected (docs/security.md).
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from emulator.core import json_codec
from emulator.core.cached_property import cached_property
from emulator.core.protocol import FunctionCall, Message
from emulator.hosted.hosted_tool import NO_HOSTED_TOOLS, HostedTools
from emulator.programs.program import Call
from emulator.reading.python_syntax import calls_tool
from emulator.reading.statements import Statement
from emulator.reading.tool_names import ToolNames
from emulator.rendering.python_calls import write_call
from emulator.rendering.transcript import render_calls
from emulator.reply.draft_block import DraftBlock
from emulator.reply.quoted_texts import quoted_texts
from emulator.reply.written_calls import WrittenCall, name_pattern, written_calls
from emulator.tools.toolset import Toolset
from sandbox.parsing import parse

_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_MARGIN = re.compile(r"^[ \t]*(?:(?:>>>|\.\.\.|[>|])[ \t]?)+", re.MULTILINE)
"""Prefixes of quoted lines in mails and consoles."""
_MAX_STRINGS = 10_000
_MAX_SEARCHED = 1 << 28
"""Characters searched for one answer. After that every call counts as quoted."""
_CANDIDATE = 1 << 10
"""Characters that count for each name that is found."""


def squeezed(text: str) -> str:
    """``text`` without white space, except one blank between two words."""
    words = _BETWEEN_WORDS.sub("\0", _MARGIN.sub("", text))
    return _SPACE.sub("", words).replace("\0", " ")


class Quotations:
    """What other authors wrote: results, and quoted parts of messages. Prepared at the first question."""

    def __init__(
        self,
        messages: Sequence[Message],
        toolset: Toolset,
        hosted: HostedTools = NO_HOSTED_TOOLS,
    ) -> None:
        self._messages = messages
        self._toolset = toolset
        self._hosted = hosted
        self._searched = 0
        self._squeezings: dict[str, str] = {}
        self._confirmed: set[str] = set()
        self._own: set[tuple[str, ...]] = set()
        """The calls that the model has confirmed."""

    def contains(self, text: str) -> bool:
        """Return True if ``text``, which the model has not confirmed, occurs in a message."""
        pattern = squeezed(text)
        return bool(pattern) and pattern not in self._confirmed and self._occurs(pattern)

    def contains_call(self, statement: Statement) -> bool:
        """Return True if a statement makes a call that occurs in a message, and is not the model's own."""
        calls = written_calls(statement, self._toolset.names)
        if any(call is not None and self._quotes(call) for call in calls):
            return True
        literal = bool(calls) and None not in calls
        texts = (statement.source, statement.original.strip())
        return not literal and any(self.contains(text) for text in texts)

    def contains_block(self, text: str, statements: Sequence[Statement]) -> bool:
        """Return True if a block occurs in a message, and its calls are not all the model's own."""
        if not self.contains(text):
            return False
        calls = [call for one in statements for call in written_calls(one, self._toolset.names)]
        return not all(call is not None and self._is_own(call) for call in calls)

    def begins_call(self, call: WrittenCall) -> bool:
        """Return True if a message has a call whose last argument begins like that of ``call``."""
        return self._quotes(call, unfinished=True)

    def confirm(self, text: str) -> None:
        """The model was asked about ``text``: if it writes the text or its calls again, it means them."""
        self._confirmed.add(squeezed(text))
        self._own |= {call.key for call in written_calls(text, self._toolset.names) if call}

    def confirmed(self, texts: Sequence[str]) -> bool:
        """Return True if the model was asked about each of ``texts``."""
        return bool(texts) and all(squeezed(text) in self._confirmed for text in texts)

    def quotes(self, call: Call) -> bool:
        """Return True if a message has a call that a program makes, however the program came to it."""
        tool = self._toolset.find(call.name)
        name = tool.python_name if tool else call.name
        return self._quotes(WrittenCall(name, tuple(call.arguments.values())))

    def written(self, call: Call) -> str:
        """The call as the model would write it, to ask about it."""
        function = FunctionCall(name=call.name, arguments=json.dumps(dict(call.arguments)))
        return write_call(function, self._toolset)

    def was_asked(self, block: DraftBlock) -> bool:
        """Return True if the model was asked about this block, or about its calls."""
        if squeezed(block.inner) in self._confirmed:
            return True
        names = self._toolset.names
        calls = [call for one in block.statements for call in written_calls(one, names)]
        return bool(calls) and all(call is not None and call.key in self._own for call in calls)

    def _is_own(self, call: WrittenCall) -> bool:
        return call.key in self._own or call.key in self._earlier_calls

    def _quotes(self, call: WrittenCall, *, unfinished: bool = False) -> bool:
        # Few calls occur in a message, and to read all earlier calls takes longer than to look.
        return self._is_written(call, unfinished=unfinished) and not self._is_own(call)

    def _is_written(self, call: WrittenCall, *, unfinished: bool) -> bool:
        tool = self._toolset.find(call.name)
        parameters = (
            [name for p in tool.arguments for name in (p.name, p.python_name)] if tool else []
        )
        names = {call.name, tool.name} if tool else {call.name}
        passages = self._passages_with("|".join(map(name_pattern, names)))
        texts = dict.fromkeys(text for passage in passages for text in passage.lower_readings)
        for text, name in product([*texts, *self._descriptions(call)], names):
            self._searched += len(text)
            for found in call.candidates(text, name, parameters, unfinished=unfinished):
                self._searched += _CANDIDATE
                if self._searched > _MAX_SEARCHED:
                    return True
                if found:
                    return True
        return self._searched > _MAX_SEARCHED

    def _occurs(self, pattern: str) -> bool:
        # Squeezing changes no word: only texts that contain the longest word need to be squeezed.
        word = max(_WORD.findall(pattern), key=len, default="")
        passages = self._passages_with(re.escape(word.casefold()))
        for reading in dict.fromkeys(text for passage in passages for text in passage.readings):
            self._searched += len(reading)
            if self._searched > _MAX_SEARCHED:
                return True
            if word not in reading:
                continue
            text = self._squeezed(reading)
            at = text.find(pattern)
            while at >= 0:
                if _is_whole(text, at, at + len(pattern)):
                    return True
                at = text.find(pattern, at + len(pattern))
        return self._searched > _MAX_SEARCHED

    def _passages_with(self, pattern: str) -> list[_Passage]:
        """The messages of other authors in which a pattern may be found. Escaped text is always read."""
        search = re.compile(pattern).search
        self._searched += self._characters
        if self._searched > _MAX_SEARCHED:
            return []  # every call counts as quoted
        return [one for one in self._passages if one.is_escaped or search(one.lower)]

    @cached_property
    def _characters(self) -> int:
        return sum(len(one.lower) for one in self._passages)

    @cached_property
    def _passages(self) -> list[_Passage]:
        return [_Passage(one) for one in self._messages if one.role != "assistant"]

    def _descriptions(self, call: WrittenCall) -> Iterable[str]:
        """What the servers that do not run this call say of their tools."""
        tool = self._toolset.find(call.name)
        own = self._hosted.find(tool.name if tool else call.name)
        for server, texts in self._described.items():
            if own is None or server != own.server:
                yield from texts

    @cached_property
    def _described(self) -> dict[str, list[str]]:
        """The texts in the definitions of each server's tools, in lower case."""
        texts: dict[str, list[str]] = {}
        for tool in self._hosted.tools:
            if tool.server:
                readings = (r for text in _strings(dict(tool.definition)) for r in _readings(text))
                texts.setdefault(tool.server, []).extend(one.casefold() for one in readings)
        return texts

    def _squeezed(self, reading: str) -> str:
        if reading not in self._squeezings:
            self._squeezings[reading] = squeezed(reading)
        return self._squeezings[reading]

    @cached_property
    def _earlier_calls(self) -> frozenset[tuple[str, ...]]:
        """The calls that the model has made in this conversation."""
        names = self._toolset.names
        sources = render_calls(self._messages, self._toolset)
        return frozenset(call.key for one in sources for call in written_calls(one, names) if call)


class _Passage:
    """A message with parts that its author did not write. They are found only if the message is read."""

    def __init__(self, message: Message) -> None:
        self._text = message.text
        self._is_result = message.role in ("tool", "function")
        self.lower = self._text.casefold()
        self.is_escaped = "\\" in self._text or "&" in self._text

    @cached_property
    def readings(self) -> list[str]:
        parts = (self._text,) if self._is_result else quoted_texts(self._text)
        return [reading for part in parts for reading in _readings(part) if reading]

    @cached_property
    def lower_readings(self) -> list[str]:
        return [reading.casefold() for reading in self.readings]


def _readings(text: str) -> Iterator[str]:
    """``text`` as a model may read it: unchanged, unescaped, and the strings of JSON."""
    yield text
    if "&" in text:
        yield html.unescape(text)
    if "\\" not in text:
        return
    yield (unescaped := _unescaped(text))
    if "\\" in unescaped:  # JSON in JSON
        yield _unescaped(unescaped)
    try:
        value = json_codec.loads(text)
    except json_codec.NotJSON:
        return
    for string in _strings(value):
        yield string
        if "\\" in string:
            yield _unescaped(string)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text)


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def _strings(value: Any) -> Iterator[str]:
    """The strings in a JSON value at any depth."""
    pending, count = [value], 0
    while pending and count < _MAX_STRINGS:
        item = pending.pop()
        if isinstance(item, str):
            count += 1
            yield item
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return True if the match does not split a word: ``ls`` does not occur in ``tools``."""
    before = start > 0 and _is_word(text[start - 1]) and _is_word(text[start])
    after = end < len(text) and _is_word(text[end - 1]) and _is_word(text[end])
    return not (before or after)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def quoted_parts(code: str, quotations: Quotations, names: Collection[str]) -> list[str]:
    """Return the quoted parts of a cell that must not run before the model confirms them.

    A part is the whole cell, all of its statements with an effect, or a statement that calls an offered
    function. A single common line, such as an import, is not a quotation.
    """
    try:
        tree = parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [code] if quotations.contains(code) else []
    offered = ToolNames.of(names)
    effective = [
        (node, ast.get_source_segment(code, node) or "") for node in tree.body if _has_effect(node)
    ]
    parts = [text for _, text in effective]
    calls = [text for node, text in effective if calls_tool(node, offered)]
    if quoted := [text for text in calls if quotations.contains_call(Statement(text, 1))]:
        return quoted
    if parts and all(map(quotations.contains, parts)):
        return parts
    return [code] if quotations.contains(code) and not quotations.confirmed(parts) else []


def _has_effect(statement: ast.stmt) -> bool:
    """Return True if a statement calls something. Printing a value that exists already does not count."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() | ast.Pass():
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            return any(isinstance(node, ast.Call) for arg in args for node in ast.walk(arg))
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))
