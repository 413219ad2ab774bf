"""Is what a model wrote as a call a quotation of somebody else?

Text that stands in a message of the user, of a tool or of the system is not the model's own: whoever can
write there, the author of a fetched web page for one, must not call by being quoted. Knows nothing of
syntax: texts are compared as they stand, but for white space. A call that the model only obeys, in words of
its own, is not seen here (docs/security.md).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from emulator import json_codec
from emulator.answering.transcript import render_calls
from emulator.protocol import Message
from emulator.tools.toolset import Toolset

_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_MARGIN = re.compile(r"^[ \t]*(?:(?:>>>|\.\.\.|[>|])[ \t]?)+", re.MULTILINE)
"""What stands before lines that are quoted, in mails and consoles."""
_FRAME = re.compile(
    r"\A(?:\s*(?:<[^<>\n]{1,60}>|\[/?TOOL_CALLS\]|functools))+|(?:<[^<>\n]{1,60}>\s*)+\Z"
)
_MAX_STRINGS = 10_000
_MAX_SEARCHED = 1 << 28
"""Characters that are searched in one answer; behind them every call counts as quoted."""


def squeezed(text: str) -> str:
    """``text`` without white space, but for one blank between two words."""
    words = _BETWEEN_WORDS.sub("\0", _MARGIN.sub("", text))
    return _SPACE.sub("", words).replace("\0", " ")


class Quotations:
    """What stands in the messages that are not the assistant's. Prepared when first asked."""

    def __init__(self, messages: Sequence[Message], toolset: Toolset) -> None:
        self._messages = messages
        self._toolset = toolset
        self._searched = 0
        self._squeezings: dict[str, str] = {}
        self._confirmed: set[str] = set()

    def holds(self, text: str) -> bool:
        """Whether ``text`` is a quotation, and neither confirmed nor called before by the model itself."""
        sought = _sought(text)
        if sought & self._confirmed or not any(self._stands(one) for one in sought):
            return False
        return not any(_plain(one) in self._own for one in sought)

    def confirm(self, text: str) -> None:
        """The model has been asked about ``text``: when it writes that again, it means it."""
        self._confirmed |= _sought(text)

    def confirmed(self, texts: Sequence[str]) -> bool:
        """Whether the model has been asked about each of ``texts``."""
        return bool(texts) and all(squeezed(text) in self._confirmed for text in texts)

    def _stands(self, sought: str) -> bool:
        # No word is changed by squeezing: few texts of a long history have to be.
        word = max(_WORD.findall(sought), key=len, default="")
        for reading in self._texts:
            self._searched += len(reading)
            if self._searched > _MAX_SEARCHED:
                return True
            if word not in reading:
                continue
            text = self._squeezed(reading)
            at = text.find(sought)
            while at >= 0:
                if _is_whole(text, at, at + len(sought)):
                    return True
                at = text.find(sought, at + len(sought))
        return False

    @cached_property
    def _texts(self) -> list[str]:
        others = [message for message in self._messages if message.role != "assistant"]
        found = {text: None for one in others for text in _readings(one.text)}
        return [text for text in found if text]

    def _squeezed(self, reading: str) -> str:
        if reading not in self._squeezings:
            self._squeezings[reading] = squeezed(reading)
        return self._squeezings[reading]

    @cached_property
    def _own(self) -> frozenset[str]:
        """The calls that the model has made in this conversation, as it is told of them."""
        written = render_calls(self._messages, self._toolset)
        return frozenset(_plain(squeezed(call)) for call in written)


def _sought(text: str) -> set[str]:
    """``text`` as it is looked for: with the tags around it, and without."""
    without = _FRAME.sub("", text)
    texts = (text,) if without == text else (text, without)
    return {one for one in map(squeezed, texts) if one}


def _plain(text: str) -> str:
    return text.replace('"', "'")


def _readings(text: str) -> Iterator[str]:
    """``text``, and what a reader takes it for: the strings of JSON, text with its escapes undone."""
    yield text
    if "&" in text:
        yield html.unescape(text)
    if "\\" not in text:
        return
    try:
        value = json_codec.loads(text)
    except json_codec.NotJSON:
        yield _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text)
    else:
        yield from _strings(value)


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def _strings(value: Any) -> Iterator[str]:
    """The strings in a JSON value, in any depth."""
    waiting, found = [value], 0
    while waiting and found < _MAX_STRINGS:
        one = waiting.pop()
        if isinstance(one, str):
            found += 1
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether no word goes on over either end: ``ls`` does not stand in ``tools``."""
    before = start > 0 and _is_word(text[start - 1]) and _is_word(text[start])
    after = end < len(text) and _is_word(text[end - 1]) and _is_word(text[end])
    return not (before or after)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
