"""A call whose long text is told while the model still writes it: clients show a file as it grows.

That is possible where all of the call but the rest of that text is known: it is the first of the reply, calls
an offered function with literals, lacks no argument and would be valid as it stands, and the text, its last
argument so far, may be any text. Then what has been told is the beginning of what will be called, unless what
follows the text makes something else of it (``.format(...)``, an argument that does not exist). Then there is
no call, and the answer ends with an error (`ProgramDraft`).

Sans-IO and indifferent to where the reply is cut. Knows nothing of blocks or programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from emulator import json_codec
from emulator.answering.open_text import SYNTAXES, OpenCall, OpenText
from emulator.events import ArgumentsDelta, CallStarted, pieces, serialize_arguments
from emulator.reading.lexing import PythonScan
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset

LONG = 200
"""Characters from which on a text is worth it."""
_STEP = 64
"""Characters between two looks at a call that has not begun to be told."""
MAX_HEAD = 32_768
"""Characters in front of the text."""

_ANY_TEXT = frozenset({"type", "description", "title", "default", "examples", "$comment"})
_ANY_OBJECT = frozenset(
    {"type", "description", "title", "properties", "required", "additionalProperties", "$defs"}
)


class EarlyCall:
    """Fed what a model writes as a call; ``begun`` once some of it has been told."""

    def __init__(
        self,
        dialect: str,
        toolset: Toolset,
        key: str,
        *,
        is_free: Callable[[Tool], bool],
        quotes: Callable[[str], bool],
    ) -> None:
        """``key`` is the call's id. ``is_free``: whether a call of a tool may be told at once; ``quotes``:
        whether a text stands in a message of somebody else."""
        self._syntax = SYNTAXES[dialect]
        self._toolset = toolset
        self._key = key
        self._is_free = is_free
        self._quotes = quotes
        self._head = ""
        self._next = LONG
        self._looked_at = -1
        self._text: OpenText | None = None
        self._rest = ""
        self._over = False
        self._sent: list[str] = []
        self.begun: CallStarted | None = None

    def feed(self, text: str) -> Iterator[CallStarted | ArgumentsDelta]:
        if self._over:
            return
        if self._text is not None:
            yield from self._go_on(self._text, text)
            return
        self._head += text
        if len(self._head) >= self._next:
            self._next = len(self._head) + _STEP
            yield from self._look()
            if len(self._head) > MAX_HEAD:
                self._over = True

    def fits(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call is the one that has been told of."""
        if self.begun is None:
            return True
        told = serialize_arguments(arguments, self.begun.kind)
        return name == self.begun.name and told.startswith("".join(self._sent))

    def _look(self) -> Iterator[CallStarted | ArgumentsDelta]:
        """Whether the call can be told from here on."""
        text = self._syntax.open_text(self._head)
        if text is None or text.begins == self._looked_at or len(self._head) < text.begins + LONG:
            return
        self._looked_at = text.begins
        body = self._head[text.begins :]
        ready = self._ready(body, text.quote)
        opening = self._syntax.opening(self._head[: text.begins] + ready, text.quote)
        tool = self._toolset.find(opening.name) if opening else None
        if opening is None or tool is None or not self._is_free(tool):
            return
        arguments = self._certain(tool, opening)
        if arguments is None or self._quotes(re.sub(r"\w+\Z", "", self._head)):
            return
        self._text, self._head, self._rest = text, "", body[len(ready) :]
        self.begun = CallStarted(self._key, tool.name, tool.kind)
        yield self.begun
        told = serialize_arguments(arguments, tool.kind)
        yield from self._told(told if tool.kind == "custom" else told.removesuffix('"}'))

    def _certain(self, tool: Tool, opening: OpenCall) -> dict[str, Any] | None:
        """The arguments so far, if more text at the end of the last one leaves them valid."""
        names = [*opening.kwargs] or [p.python_name for p in tool.arguments[: len(opening.args)]]
        value = [*opening.args, *opening.kwargs.values()][-1]
        try:
            arguments = self._toolset.bind(tool.python_name, opening.args, opening.kwargs)
        except BindError:
            return None
        last = tool.wire_name(names[-1]) if names else None
        schema = tool.parameters.get("properties", {}).get(last)
        certain = (
            tool.grammar is None
            and tool.parameters.keys() <= _ANY_OBJECT
            and isinstance(schema, dict)
            and schema.keys() <= _ANY_TEXT
            and schema.get("type") == "string"
            and [*arguments][-1] == last
            and arguments[last] == value
        )
        return arguments if certain else None

    def _go_on(self, text: OpenText, further: str) -> Iterator[ArgumentsDelta]:
        """More of the text, up to its end."""
        further = self._rest + further
        end = _end(further, text.quote)
        piece = self._ready(further, text.quote) if end is None else further[:end]
        self._rest = further[len(piece) :]
        self._over = end is not None
        if not piece:
            return
        try:
            decoded = self._syntax.decoded(piece, text.prefix + text.quote)
        except (SyntaxError, ValueError):
            self._over = True
            return
        if any("\ud800" <= character <= "\udfff" for character in decoded):
            self._over = True
        elif self.begun is not None and self.begun.kind == "custom":
            yield from self._told(decoded)
        else:
            yield from self._told(json_codec.dumps(decoded).decode()[1:-1])

    def _told(self, text: str) -> Iterator[ArgumentsDelta]:
        self._sent.append(text)
        for piece in pieces(text) if text else ():
            yield ArgumentsDelta(piece)

    def _ready(self, text: str, quote: str) -> str:
        """``text`` without what may be part of an escape, a line end or the closing quote at its end."""
        while True:
            short = text.rstrip("\r" + quote[0])
            if escape := self._syntax.escape.search(short[-120:]):
                short = short[: len(short) - len(escape[1])]
            if short == text:
                return text
            text = short


def _end(text: str, quote: str) -> int | None:
    """Where an open string ends."""
    scan, at = PythonScan(quote=quote), 0
    while at < len(text):
        start, at = scan.step(text, at)
        if not scan.quote:
            return start
    return None
