"""Reasoning in its tags: where it ends, and what belongs to the tags."""

from __future__ import annotations

from collections.abc import Generator

from emulator.reading.events import Event, Reasoning
from emulator.reading.scanner import Position, Scanner, Verdict
from emulator.reading.tags import REASONING
from emulator.reading.text_buffer import TextBuffer

_QUOTES = frozenset("`'\"“‘”’")
_LONGEST = max(map(len, REASONING))


def mentioned(text: TextBuffer, tag: str) -> Verdict:
    """Whether the tag at hand stands in quotes, and so is only spoken of."""
    if text.last not in _QUOTES:
        return Verdict.NO
    following = text.text[text.at + len(tag) : text.at + len(tag) + 1]
    if not following and not text.final:
        return Verdict.MAYBE
    return Verdict.YES if following in _QUOTES else Verdict.NO


def reasoning(text: TextBuffer, closings: tuple[str, ...]) -> Generator[Event | None, None, bool]:
    """Up to the first of ``closings`` that is not only spoken of; ``ended`` is told of it."""
    yield from blank(text)
    again = yield from _opened_again(text)
    if again is not None:
        closings = (REASONING[again],)
    while True:
        before, closing = text.closing(closings)
        raw = text.take(before)
        yield Reasoning(raw, raw)
        mention = mentioned(text, closing) if closing else Verdict.MAYBE
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


def _opened_again(text: TextBuffer) -> Generator[Event | None, None, str | None]:
    """The tag that a model writes although the template, or itself, has opened one already."""
    again = None
    while True:
        rest, whole = text.head(_LONGEST)
        tag = next((tag for tag in REASONING if rest.startswith(tag)), None)
        if tag is not None:
            again = tag
            yield Reasoning("", text.take(len(tag)))
            yield from blank(text)
        elif whole or not any(tag.startswith(rest) for tag in REASONING):
            return again
        else:
            yield None


def blank(text: TextBuffer) -> Scanner:
    """Line ends around reasoning belong to its tags."""
    while True:
        rest = text.text[text.at :]
        yield Reasoning("", text.take(len(rest) - len(rest.lstrip("\r\n"))))
        if len(text) or text.final:
            return Position.LINE_START
        yield None
