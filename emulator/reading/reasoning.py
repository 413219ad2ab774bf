"""Reasoning between tags: where it ends, and which characters belong to the tags."""

from __future__ import annotations

import re
from collections.abc import Generator

from emulator.reading.events import Event, Reasoning
from emulator.reading.scanner import Position, Scanner, Verdict
from emulator.reading.tags import REASONING
from emulator.reading.text_buffer import TextBuffer

_QUOTES = frozenset("`'\"“‘”’")
_LONGEST = max(map(len, REASONING))


def quoted_tag(text: TextBuffer, tag: str) -> Verdict:
    """Test whether the tag that begins here is in quotes, and so is only mentioned."""
    if text.last not in _QUOTES:
        return Verdict.NO
    following = text.text[text.at + len(tag) : text.at + len(tag) + 1]
    if not following and not text.final:
        return Verdict.MAYBE
    return Verdict.YES if following in _QUOTES else Verdict.NO


#: What follows the name of a tag in a sentence: "models write <tool_call> tags".
_IN_SENTENCE = re.compile(
    r"[ \t]+(?:tags?|tokens?|elements?|blocks?|markers?|markup|is|are|and|or|to|means?|format"
    r"|syntax|around)\b(?!\Z)"
    r"|[,;.)?!](?=\s)"
)
_MENTION = 12


def named_tag(text: TextBuffer, tag: str) -> Verdict:
    """Test whether the tag that begins here is only named in a sentence."""
    if text.last not in (" ", "("):
        return Verdict.NO
    following = text.text[text.at + len(tag) : text.at + len(tag) + _MENTION]
    if following[:1].strip(" \t,;.)?!"):
        return Verdict.NO
    if len(following) < _MENTION and not text.final:
        return Verdict.MAYBE
    return Verdict.YES if _IN_SENTENCE.match(following + "\n") else Verdict.NO


def scan_reasoning(
    text: TextBuffer, closings: tuple[str, ...]
) -> Generator[Event | None, None, bool]:
    """Scan up to the first of ``closings`` that is not in quotes. Returns False if the reply ends
    first.
    """
    yield from take_line_ends(text)
    repeated_tag = yield from _repeated_opening(text)
    if repeated_tag is not None:
        closings = (REASONING[repeated_tag],)
    while True:
        before, closing = text.closing(closings)
        raw = text.take(before)
        yield Reasoning(raw, raw)
        mention = quoted_tag(text, closing) if closing else Verdict.MAYBE
        if mention is Verdict.NO and closing:
            yield Reasoning("", text.take(len(closing)))
            return True
        if mention is Verdict.YES and closing:
            raw = text.take(len(closing))
            yield Reasoning(raw, raw)
        elif text.final:
            return False
        else:
            yield None


def _repeated_opening(text: TextBuffer) -> Generator[Event | None, None, str | None]:
    """Take opening tags that a model repeats after the template, or itself, already opened the
    reasoning. Returns the last one.
    """
    repeated_tag = None
    while True:
        rest, whole = text.head(_LONGEST)
        tag = next((tag for tag in REASONING if rest.startswith(tag)), None)
        if tag is not None:
            repeated_tag = tag
            yield Reasoning("", text.take(len(tag)))
            yield from take_line_ends(text)
        elif whole or not any(tag.startswith(rest) for tag in REASONING):
            return repeated_tag
        else:
            yield None


def take_line_ends(text: TextBuffer) -> Scanner:
    """Take line ends around reasoning: they belong to its tags."""
    while True:
        rest = text.text[text.at :]
        yield Reasoning("", text.take(len(rest) - len(rest.lstrip("\r\n"))))
        if len(text) or text.final:
            return Position.LINE_START
        yield None
