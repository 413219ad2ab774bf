"""Find calls that a model copied from another author's text.

A call that appears in a message of the user, of a tool or of the system may not be the model's own intent:
the author of a fetched web page, for example, must not call a tool by being quoted. Texts are compared
literally, except for white space; the syntax does not matter. A call that the model makes in its own words
because a text told it to is not detected (docs/security.md).
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
"""Prefixes of quoted lines in mails and consoles."""
_FRAME = re.compile(
    r"\A(?:\s*(?:<[^<>\n]{1,60}>|\[/?TOOL_CALLS\]|functools))+|(?:<[^<>\n]{1,60}>\s*)+\Z"
)
_MAX_STRINGS = 10_000
_MAX_SEARCHED = 1 << 28
"""Characters searched for one answer. After that every call counts as quoted."""


def squeezed(text: str) -> str:
    """``text`` without white space, except one blank between two words."""
    words = _BETWEEN_WORDS.sub("\0", _MARGIN.sub("", text))
    return _SPACE.sub("", words).replace("\0", " ")


class Quotations:
    """The texts of all messages that are not the assistant's. Prepared at the first question."""

    def __init__(self, messages: Sequence[Message], toolset: Toolset) -> None:
        self._messages = messages
        self._toolset = toolset
        self._searched = 0
        self._squeezings: dict[str, str] = {}
        self._confirmed: set[str] = set()

    def contains(self, text: str) -> bool:
        """Return True if ``text`` is a quotation that the model has neither confirmed nor called before."""
        patterns = _patterns(text)
        if patterns & self._confirmed or not any(self._occurs(pattern) for pattern in patterns):
            return False
        return not any(_single_quoted(pattern) in self._own_calls for pattern in patterns)

    def confirm(self, text: str) -> None:
        """The model was asked about ``text``: if it writes the text again, it means it."""
        self._confirmed |= _patterns(text)

    def confirmed(self, texts: Sequence[str]) -> bool:
        """Return True if the model was asked about each of ``texts``."""
        return bool(texts) and all(squeezed(text) in self._confirmed for text in texts)

    def _occurs(self, pattern: str) -> bool:
        # Squeezing changes no word: only texts that contain the longest word need to be squeezed.
        word = max(_WORD.findall(pattern), key=len, default="")
        for reading in self._texts:
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
        return False

    @cached_property
    def _texts(self) -> list[str]:
        others = [message for message in self._messages if message.role != "assistant"]
        texts = dict.fromkeys(text for other in others for text in _readings(other.text))
        return [text for text in texts if text]

    def _squeezed(self, reading: str) -> str:
        if reading not in self._squeezings:
            self._squeezings[reading] = squeezed(reading)
        return self._squeezings[reading]

    @cached_property
    def _own_calls(self) -> frozenset[str]:
        """The calls that the model has made in this conversation, as the history shows them."""
        written = render_calls(self._messages, self._toolset)
        return frozenset(_single_quoted(squeezed(call)) for call in written)


def _patterns(text: str) -> set[str]:
    """``text`` squeezed, with the tags around it and without."""
    without = _FRAME.sub("", text)
    texts = (text,) if without == text else (text, without)
    return {pattern for pattern in map(squeezed, texts) if pattern}


def _single_quoted(text: str) -> str:
    return text.replace('"', "'")


def _readings(text: str) -> Iterator[str]:
    """``text`` as a model may read it: unchanged, unescaped, and the strings of JSON."""
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
