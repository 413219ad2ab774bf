"""Find what a model copied from another author's text.

A call in a tool's result, or in a quoted part of another message (`quoted_texts`), may not be the model's own
intent: the author of a fetched web page, for example, must not call a tool by being quoted. What the user
writes outside quotations is the user's order.

* Compared is what was *written*, before names and arguments mean anything: a statement or a block without
  white space, whatever its case and quotes. Otherwise our own repairs would make a call of a page's typo.
  The calls of a program are compared as the model would write them, in Python and in JSON.
* Summaries count as results do, and so does what an MCP server says of its tools, for calls of others' tools.
* A call that the model has made before is its own, and so is the *continuation* of a reading: the tool only
  reads, and the model has used every text of the arguments with it before. If only the tool's name says that
  it reads, there must be such a text, or its own result must have the call.

A call that the model makes in its own words because a text told it to is not detected (docs/security.md).
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from emulator.core import json_codec
from emulator.core.cached_property import cached_property
from emulator.core.protocol import FunctionCall, Message
from emulator.hosted.hosted_tool import NO_HOSTED_TOOLS, HostedTools
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import Call, Program
from emulator.reading.python_syntax import calls_tool
from emulator.reading.statements import Statement
from emulator.reading.tool_names import ToolNames
from emulator.rendering.python_calls import write_call
from emulator.rendering.transcript import calls_of
from emulator.reply.quoted_texts import quoted_texts
from emulator.tools.effects import Effect
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset
from sandbox.parsing import parse

_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_CLOSING = re.compile(r",?([)\]}])")
_QUOTES = str.maketrans(dict.fromkeys("'“”„‘’", '"'))
_MARGIN = re.compile(r"^[ \t]*(?:(?:>>>|\.\.\.|[>|])[ \t]?)+", re.MULTILINE)
"""Prefixes of quoted lines in mails and consoles."""
_SERVER = re.compile(r"mcp__(.+?)__")
"""The server in the name of a tool that the client runs."""
_MAX_STRINGS = 10_000
_MAX_SEARCHED = 1 << 28
"""Characters searched for one answer. After that every call counts as quoted."""

LiteralCall = tuple[Tool, Sequence[Any]]
"""A tool and the values of the arguments."""


def squeezed(text: str) -> str:
    """``text`` in lower case, with one kind of quotes, without commas before closing brackets, and without
    white space except one blank between two words."""
    plain = _MARGIN.sub("", text.casefold().translate(_QUOTES))
    dense = _SPACE.sub("", _BETWEEN_WORDS.sub("\0", plain)).replace("\0", " ")
    return _CLOSING.sub(r"\1", dense)


class Quotations:
    """What other authors wrote. Prepared at the first question."""

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

    def quotes_text(self, text: str) -> bool:
        """Return True if others wrote ``text``."""
        return bool(self._passages_with(text))

    def quotes_statement(self, written: Statement, meant: Statement) -> bool:
        """Return True if others wrote the statement; ``meant`` is the same with the names of the tools."""
        texts = [written.source, written.original]
        if (call := written.call) is not None and not call.args:
            texts.append(_as_json(call.written_name, call.kwargs))
        return self._quotes(texts, lambda: self._literal_calls([meant]))

    def quotes_block(self, text: str, meant: Sequence[Statement]) -> bool:
        """Return True if others wrote the whole block."""
        return self._quotes([text], lambda: self._literal_calls(meant))

    def quotes_call(self, call: Call) -> bool:
        """Return True if others wrote the call of a program, however the program came to it."""
        tool = self._toolset.find(call.name)
        function = FunctionCall(name=call.name, arguments=json.dumps(dict(call.arguments)))
        values = [*call.arguments.values()]
        texts = [
            write_call(function, self._toolset),
            f"{call.name}({', '.join(map(repr, values))})",
            _as_json(call.name, call.arguments),
        ]
        return self._quotes(texts, lambda: [(tool, values)] if tool else None)

    def quotes_cell(self, code: str, names: ToolNames) -> bool:
        """Return True if others wrote a cell, all of its statements with an effect, or a statement that calls
        a tool. A single common line, such as an import, is no quotation."""
        try:
            tree = parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return self.quotes_text(code)
        parts = [
            (node, Statement(ast.get_source_segment(code, node) or "", 1))
            for node in tree.body
            if _has_effect(node)
        ]
        if any(calls_tool(node, names) and self.quotes_statement(one, one) for node, one in parts):
            return True
        return self.quotes_text(code) or (
            bool(parts) and all(self.quotes_text(one.source) for _, one in parts)
        )

    def _quotes(
        self, texts: Iterable[str], find_calls: Callable[[], Sequence[LiteralCall] | None]
    ) -> bool:
        """Return True if others wrote one of the texts, and a call in it is not the model's own."""
        passages = [one for text in dict.fromkeys(texts) for one in self._passages_with(text)]
        if not passages:
            return False
        calls = find_calls()
        return not calls or any(self._is_foreign(*call, passages) for call in calls)

    def _is_foreign(self, tool: Tool, values: Sequence[Any], passages: Sequence[_Passage]) -> bool:
        server = self._server(tool)
        passages = [one for one in passages if one.server is None or one.server != server]
        if not passages or _own_key(tool.name, values) in self._own_calls:
            return False
        used, texts = self._used_texts.get(tool.name), set(_strings([*values]))
        if tool.effect is not Effect.READS or used is None or not texts <= used:
            return True
        in_own_result = any(self._is_result_of(one, tool) for one in passages)
        return not (tool.declares_reading or texts or in_own_result)

    def _literal_calls(self, statements: Sequence[Statement]) -> list[LiteralCall] | None:
        """The calls of the statements; None if there are others than literal calls of tools."""
        requests = plain_calls(Program((*statements,)), self._toolset.names)
        found = [(self._toolset.find(one.name), one) for one in requests or ()]
        return [(tool, [*one.args, *one.kwargs.values()]) for tool, one in found if tool]

    def _passages_with(self, text: str) -> list[_Passage]:
        pattern = squeezed(text)
        if not pattern:
            return []
        # Squeezing changes no word: only texts that contain the longest word need to be squeezed.
        word = max(_WORD.findall(pattern), key=len, default="")
        return [one for one in self._passages if self._occurs(pattern, word, one)]

    def _occurs(self, pattern: str, word: str, passage: _Passage) -> bool:
        self._searched += len(passage.lower)
        if self._searched > _MAX_SEARCHED:
            return True
        if not passage.is_escaped and word not in passage.lower:
            return False
        start = pattern.rstrip('")]}')  # a mark inside a call may seem to close a quoted text
        for reading in passage.readings:
            self._searched += len(reading)
            if word not in reading:
                continue
            text = self._squeezed(reading)
            if (
                start
                and text.endswith(start)
                and _is_whole(text, len(text) - len(start), len(text))
            ):
                return True
            at = text.find(pattern)
            while at >= 0:
                if _is_whole(text, at, at + len(pattern)):
                    return True
                at = text.find(pattern, at + len(pattern))
        return False

    def _squeezed(self, reading: str) -> str:
        if reading not in self._squeezings:
            self._squeezings[reading] = squeezed(reading)
        return self._squeezings[reading]

    @cached_property
    def _passages(self) -> list[_Passage]:
        written = [_Passage(one.text, one) for one in self._messages if one.role != "assistant"]
        return [*written, *(_Passage(text, server=name) for name, text in self._described())]

    def _is_result_of(self, passage: _Passage, tool: Tool) -> bool:
        result = passage.result
        name = self._names.get(result.tool_call_id or result.name or "") if result else None
        return name is not None and self._toolset.find(name) is tool

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The names of the earlier calls, by the keys of their results."""
        return {key: call.name for one in self._messages for key, call in calls_of(one)}

    def _described(self) -> Iterator[tuple[str, str]]:
        """What servers say of their tools, with the server's name."""
        for hosted in self._hosted.tools:
            if hosted.server:
                yield from ((hosted.server, text) for text in _strings(dict(hosted.definition)))
        for tool in self._toolset.tools:
            if server := _SERVER.match(tool.name):
                texts = [tool.description, tool.parameters]
                yield from ((server[1], text) for text in _strings(texts))

    def _server(self, tool: Tool) -> str | None:
        hosted = self._hosted.find(tool.name)
        server = _SERVER.match(tool.name)
        return (hosted.server if hosted else server[1] if server else None) or None

    @cached_property
    def _earlier_calls(self) -> list[tuple[str, list[Any]]]:
        """The calls that the model has made in this conversation."""
        found = []
        for message in self._messages:
            for _, call in calls_of(message):
                tool = self._toolset.find(call.name)
                try:
                    arguments = json_codec.loads(call.arguments or "{}")
                except json_codec.NotJSON:
                    continue
                if isinstance(arguments, dict):
                    found.append((tool.name if tool else call.name, [*arguments.values()]))
        return found

    @cached_property
    def _own_calls(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_own_key(name, values) for name, values in self._earlier_calls)

    @cached_property
    def _used_texts(self) -> Mapping[str, set[str]]:
        """The texts in the arguments of earlier calls, by tool."""
        used: dict[str, set[str]] = {}
        for name, values in self._earlier_calls:
            used.setdefault(name, set()).update(_strings(values))
        return used


_RESULTS = ("tool", "function")


class _Passage:
    """A text with parts that its author did not write. They are found only if the text is read."""

    def __init__(
        self, text: str, message: Message | None = None, *, server: str | None = None
    ) -> None:
        """The text of ``message``, or what ``server`` says of a tool."""
        self._text = text
        self.result = message if message and message.role in _RESULTS else None
        self.server = server
        self._is_summary = message is not None and message.is_summary
        self.lower = text.casefold()
        self.is_escaped = "\\" in text or "&" in text

    @cached_property
    def readings(self) -> list[str]:
        """The foreign parts in lower case."""
        is_whole = self.result or self.server or self._is_summary
        parts = (self._text,) if is_whole else quoted_texts(self._text)
        readings = (reading.casefold() for part in parts for reading in _readings(part))
        return [*filter(None, dict.fromkeys(readings))]


def _own_key(name: str, values: Sequence[Any]) -> tuple[str, ...]:
    """Equal for calls that differ in the order of arguments, or in coerced types."""
    return (name, *sorted(map(str, values)))


def _as_json(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)


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
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return True if the match does not split a word: ``ls`` does not occur in ``tools``."""
    before = start > 0 and _is_word(text[start - 1]) and _is_word(text[start])
    after = end < len(text) and _is_word(text[end - 1]) and _is_word(text[end])
    return not (before or after)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _has_effect(statement: ast.stmt) -> bool:
    """Return True if a statement calls something. Printing a value that exists already does not count."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() | ast.Pass():
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            return any(isinstance(node, ast.Call) for arg in args for node in ast.walk(arg))
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))
