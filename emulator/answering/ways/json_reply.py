"""Read a constrained reply as it streams, and write one for the history.

`ConstrainedSplitter` decodes ``{"say": "..."}`` and gives everything else to the ordinary splitter, which
reads ``{"calls": [...]}`` as it reads JSON calls of any model. States:

* **outside**: text passes to the ordinary splitter, except what may be the start of ``{"say": "``. That start
  counts only at the beginning of the reply, and after reasoning; a fence may be around the object;
* **words**: the string is decoded and passes as prose, up to its closing quote. Nothing in it can be a call;
* **after**: ``}`` and the fence end the reply. Members that follow are read as an object of their own.

Members whose value is null or ``[]`` are skipped.

A server that ignores the schema is no error: the reply is then read like any other. Sans-IO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from emulator.core import json_codec
from emulator.core.protocol import FunctionCall
from emulator.reading.events import Event, Text
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from emulator.reading.tags import REASONING
from emulator.tools.toolset import Toolset

_START = "\0"
"""Stands for the beginning of the reply."""
_BEFORE = "|".join(map(re.escape, [_START, *REASONING.values(), "<|message|>"]))
_EMPTY = r'(?:"(?:say|calls)"\s*:\s*(?:null|\[\s*\])\s*(?:,\s*|(?=\})))'
"""A member without a value. Models write it where the prompt, not the server, asks for the object."""
_OPENING = re.compile(
    rf"(?:{_BEFORE})\s*(?P<object>(?:```(?:json)?\s*)?\{{\s*)"
    rf'(?:{_EMPTY}*"say"\s*:\s*"|(?P<empty>{_EMPTY}+)(?="calls"\s*:\s*\[\s*\{{|\}}))'
)
_PARTIAL = re.compile(
    rf"(?:{_BEFORE})\s*(?P<object>(?:`{{1,3}}j?s?o?n?\s*)?(?:\{{[\s\":,\[\]a-z]{{0,64}})?)\Z"
)
_NO_CALLS = (',"calls":[]', ',"calls":null')
"""What may follow the words, with white space, without a meaning."""
_REACH = 64
"""More characters than the longest closing tag with some white space."""
_INSIDE = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PARTIAL_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?)\Z"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


class ConstrainedSplitter:
    """`feed` and `close` as in `ReplySplitter`."""

    def __init__(self, splitter: ReplySplitter) -> None:
        self._splitter = splitter
        self._feed = self._outside
        self._passed = _START
        self._rest = ""

    @property
    def reasoning_start(self) -> ReasoningStart | None:
        return self._splitter.reasoning_start

    def reasoning_field_seen(self) -> list[Event]:
        return self._splitter.reasoning_field_seen()

    def feed(self, text: str) -> list[Event]:
        text, self._rest = self._rest + text, ""
        return self._feed(text)

    def close(self, *, cut_off: bool = False) -> list[Event]:
        rest = self._rest if self._feed == self._outside else ""
        return [*self._splitter.feed(rest), *self._splitter.close(cut_off=cut_off)]

    def _outside(self, text: str) -> list[Event]:
        window = self._passed + text
        opening = _OPENING.search(window)
        partial = opening or _PARTIAL.search(window)
        end = partial.start("object") if partial else len(window)
        passing = window[len(self._passed) : end]
        self._rest = window[end:]
        self._passed = (self._passed + passing)[-_REACH:]
        events = self._splitter.feed(passing) if passing else []
        if opening is None:
            return events
        following, self._rest = window[opening.end() :], ""
        if opening["empty"] is None:
            self._feed = self._words
        elif following.startswith("}"):
            self._feed = self._after
        else:
            self._feed = self._splitter.feed
            following = opening["object"] + following
        return [*events, *self._feed(following)]

    def _words(self, text: str) -> list[Event]:
        found = _INSIDE.match(text)
        inside = found.group() if found else ""
        if text[len(inside) : len(inside) + 1] == '"':
            self._feed = self._after
            return [*_decoded(inside), *self._after(text[len(inside) + 1 :])]
        if escape := _PARTIAL_ESCAPE.search(text):
            inside = text[: escape.start(1)]
        self._rest = text[len(inside) :]
        return _decoded(inside)

    def _after(self, text: str) -> list[Event]:
        following = text.lstrip(" \t\r\n}`")
        bare = "".join(following.split()).rstrip("}`")
        if any(each.startswith(bare) for each in _NO_CALLS):
            self._rest = bare
            return []
        self._feed = self._splitter.feed
        return self._splitter.feed(f"{{{following[1:]}" if following[0] == "," else following)


def _decoded(inside: str) -> list[Event]:
    text = _ESCAPE.sub(_meaning, inside)
    # Half of a surrogate pair cannot be sent.
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return [Text(text)] if text else []


def _meaning(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPES.get(escape[2], escape[0])  # JSON has no other escapes, but a model may


def write_reply(text: str, calls: Iterable[FunctionCall], toolset: Toolset) -> str:
    """An assistant's message as the constrained reply that it was, or would have been."""
    written: list[dict[str, Any]] = []
    for call in calls:
        tool = toolset.find(call.name)
        try:
            arguments = json_codec.loads(call.arguments or "{}")
        except json_codec.NotJSON:
            arguments = call.arguments
        written.append({"name": tool.python_name if tool else call.name, "arguments": arguments})
    words = {"say": text} if text or not written else {}
    return json.dumps({**words, **({"calls": written} if written else {})}, ensure_ascii=False)
