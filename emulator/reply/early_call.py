"""Stream the long last text of a call while the model is still writing it: clients show a file as it grows.

States of an `EarlyCall`:

* **head**: the text of the call is collected, and examined every `_STEP` characters;
* **streaming**: `started` was sent, and the decoded text follows up to its closing quote;
* **over**: nothing more is sent early.

Streaming starts only if everything but the rest of that text is known: the call is the first of the reply,
calls an offered function with literals, lacks no argument, is valid so far, and its last argument may be
any text. So what is sent is the start of the final arguments, unless the model continues the expression
(``.format(...)``) or adds an unknown argument. Then `ReplyProgram` ends the answer with an error: what was
sent is never corrected. Sans-IO and independent of where the reply is cut; knows nothing of blocks or
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from emulator.core import json_codec
from emulator.core.events import ArgumentsDelta, CallStarted, pieces, serialize_arguments
from emulator.reading.lexing import PythonScan
from emulator.reading.open_text import SYNTAXES, OpenCall, OpenText
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset

LONG = 200
"""Characters of a text that is streamed early."""
_STEP = 64
"""Characters between two examinations of the head."""
MAX_HEAD = 32_768
"""Characters before the text."""

_ANY_TEXT = frozenset({"type", "description", "title", "default", "examples", "$comment"})
_ANY_OBJECT = frozenset(
    {
        "type",
        "description",
        "title",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
        "strict",
    }
)


class EarlyCall:
    """Fed the text of a block; ``started`` is set once the call is found."""

    def __init__(
        self,
        dialect: str,
        toolset: Toolset,
        key: str,
        *,
        is_free: Callable[[Tool], bool],
        quotes: Callable[[str], bool],
        streams: bool,
    ) -> None:
        """``key`` is the call's id. ``is_free`` says whether a call of a tool may be sent early, ``quotes``
        whether another author's text begins like this one. Without ``streams`` the same call is found, but
        nothing is sent."""
        self._syntax = SYNTAXES[dialect]
        self._toolset = toolset
        self._key = key
        self._is_free = is_free
        self._quotes = quotes
        self._streams = streams
        self._head = ""
        self._next = LONG
        self._examined = -1
        self._text: OpenText | None = None
        self._rest = ""
        self._finished = False
        self._sent: list[str] = []
        self.started: CallStarted | None = None

    @property
    def is_sent(self) -> bool:
        """Whether the client has received the call's start."""
        return self._streams and self.started is not None

    def feed(self, text: str) -> Iterator[CallStarted | ArgumentsDelta]:
        yield from (event for event in self._events(text) if self._streams)

    def _events(self, text: str) -> Iterator[CallStarted | ArgumentsDelta]:
        if self._finished:
            return
        if self._text is not None:
            yield from self._stream(self._text, text)
            return
        self._head += text
        if len(self._head) >= self._next:
            self._next = len(self._head) + _STEP
            yield from self._examine()
            if len(self._head) > MAX_HEAD:
                self._finished = True

    def matches(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if ``name`` and ``arguments`` start with what was sent."""
        if self.started is None:
            return True
        serialized = serialize_arguments(arguments, self.started.kind)
        return name == self.started.name and serialized.startswith("".join(self._sent))

    def _examine(self) -> Iterator[CallStarted | ArgumentsDelta]:
        """Start streaming if the call can be sent from here on."""
        text = self._syntax.open_text(self._head)
        if text is None or text.start == self._examined or len(self._head) < text.start + LONG:
            return
        self._examined = text.start
        body = self._head[text.start :]
        ready = self._ready(body, text.quote)
        opening = self._syntax.opening(self._head[: text.start] + ready, text.quote)
        tool = self._toolset.find(opening.name) if opening else None
        if opening is None or tool is None:
            return
        arguments = self._certain(tool, opening)
        if arguments is None or not self._is_free(tool):
            return
        # What is before the name may be the model's own: a tag, a variable, a comment.
        if self._quotes(self._head[max(self._head.find(opening.name), 0) :]):
            return
        self._text, self._head, self._rest = text, "", body[len(ready) :]
        self.started = CallStarted(self._key, tool.name, tool.kind)
        yield self.started
        serialized = serialize_arguments(arguments, tool.kind)
        yield from self._send(
            serialized if tool.kind == "custom" else serialized.removesuffix('"}')
        )

    def _certain(self, tool: Tool, opening: OpenCall) -> dict[str, Any] | None:
        """The arguments so far, if they stay valid whatever text follows in the last one."""
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

    def _stream(self, text: OpenText, more: str) -> Iterator[ArgumentsDelta]:
        """Send more of the text, up to its end."""
        more = self._rest + more
        end = _end(more, text.quote)
        piece = self._ready(more, text.quote) if end is None else more[:end]
        self._rest = more[len(piece) :]
        self._finished = end is not None
        if not piece:
            return
        try:
            decoded = self._syntax.decoded(piece, text.prefix + text.quote)
        except (SyntaxError, ValueError):
            self._finished = True
            return
        if any("\ud800" <= character <= "\udfff" for character in decoded):
            self._finished = True
        elif self.started is not None and self.started.kind == "custom":
            yield from self._send(decoded)
        else:
            yield from self._send(json_codec.dumps(decoded).decode()[1:-1])

    def _send(self, text: str) -> Iterator[ArgumentsDelta]:
        self._sent.append(text)
        for piece in pieces(text) if text else ():
            yield ArgumentsDelta(piece)

    def _ready(self, text: str, quote: str) -> str:
        """``text`` without a possibly incomplete escape, line end or closing quote at its end."""
        while True:
            short = text.rstrip("\r" + quote[0])
            if escape := self._syntax.escape.search(short[-120:]):
                short = short[: len(short) - len(escape[1])]
            if short == text:
                return text
            text = short


def _end(text: str, quote: str) -> int | None:
    """The index of the closing quote of an open string, or None."""
    scan, at = PythonScan(quote=quote), 0
    while at < len(text):
        start, at = scan.step(text, at)
        if not scan.quote:
            return start
    return None
