"""Reasoning between tags: where it ends, and which characters belong to the tags."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from emulator.reading.events import Event, Position, Reasoning, Scanner, Text, Verdict
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


class LeadingReasoning:
    """Reasoning at the start of an answer that otherwise stays unchanged: no call is looked for.

    ``feed(text)``, then ``close()``, as in the splitter. White space before and after the reasoning
    is dropped.
    """

    def __init__(self) -> None:
        self._text = TextBuffer()
        self._events = self._answer()

    def feed(self, text: str) -> Iterator[Reasoning | Text]:
        self._text.feed(text)
        return self._available_events()

    def close(self) -> Iterator[Reasoning | Text]:
        """Yield the remaining text. Call it once, when the answer has ended."""
        self._text.final = True
        return self._available_events()

    def _available_events(self) -> Iterator[Reasoning | Text]:
        for event in self._events:
            if event is None:
                return
            if isinstance(event, (Reasoning, Text)) and event.text:
                yield event

    def _answer(self) -> Generator[Event | None, None, None]:
        text = self._text
        while True:
            start = text.text.lstrip()
            opening = next((tag for tag in REASONING if start.startswith(tag)), None)
            if opening or text.final or not any(tag.startswith(start) for tag in REASONING):
                break
            yield None
        if opening is not None:
            text.take(len(text) - len(start) + len(opening))
            yield from self._skip_space()
            yield from scan_reasoning(text, (REASONING[opening],))
            yield from self._skip_space()
        while len(text) or not text.final:
            yield Text(text.take(len(text)))
            yield None

    def _skip_space(self) -> Generator[None, None, None]:
        text = self._text
        while True:
            rest = text.text[text.at :]
            text.take(len(rest) - len(rest.lstrip()))
            if len(text) or text.final:
                return
            yield None
