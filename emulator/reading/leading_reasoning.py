"""Reasoning between tags at the start of an answer that otherwise stays unchanged. Knows no calls."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.reading.events import Reasoning, Text
from emulator.reading.tags import REASONING
from emulator.reading.text_buffer import partial_match


class LeadingReasoning:
    """``feed(text)``, then ``close()``, as in the splitter. Only the beginning of the text is
    examined.

    White space before and after the reasoning is dropped.
    """

    def __init__(self) -> None:
        self._closing: str | None = None
        """The closing tag of the open reasoning."""
        self._buffered = ""
        self._decided = False
        self._trim = False
        """A tag has just ended: white space after it is dropped."""

    def feed(self, text: str) -> Iterator[Reasoning | Text]:
        text, self._buffered = self._buffered + text, ""
        if not self._decided:
            begins = text.lstrip()
            opening = next((tag for tag in REASONING if begins.startswith(tag)), None)
            if opening is None and any(tag.startswith(begins) for tag in REASONING):
                self._buffered = text  # it may still become a tag
                return
            self._decided = True
            if opening is not None:
                self._closing, self._trim = REASONING[opening], True
                text = begins[len(opening) :]
        text = self._trimmed(text)
        if self._closing is not None:
            thought, closed, rest = text.partition(self._closing)
            if not closed:
                thought = text[: len(text) - partial_match(text, self._closing)]
                self._buffered = text[len(thought) :]
            if thought:
                yield Reasoning(thought, thought)
            if not closed:
                return
            self._closing, self._trim = None, True
            text = self._trimmed(rest)
        if text:
            yield Text(text)

    def _trimmed(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return text

    def close(self) -> Iterator[Reasoning | Text]:
        """Yield the buffered text, which turned out not to be a tag."""
        buffered, self._buffered = self._buffered, ""
        if buffered:
            yield Text(buffered) if self._closing is None else Reasoning(buffered, buffered)
