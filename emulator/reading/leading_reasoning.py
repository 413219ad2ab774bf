"""Reasoning between tags in front of an answer that is otherwise left as it is. Knows no calls."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.reading.events import Reasoning, Text
from emulator.reading.tags import REASONING
from emulator.reading.text_buffer import partial_match


class LeadingReasoning:
    """``feed(text)``, then ``close()``, as the splitter; only what the text begins with is looked at.

    White space in front of reasoning and behind it is left out.
    """

    def __init__(self) -> None:
        self._closing: str | None = None
        """What ends the reasoning that is open."""
        self._held = ""
        self._decided = False
        self._trim = False
        """A tag has just been read: white space behind it means nothing."""

    def feed(self, text: str) -> Iterator[Reasoning | Text]:
        text, self._held = self._held + text, ""
        if not self._decided:
            begins = text.lstrip()
            opening = next((tag for tag in REASONING if begins.startswith(tag)), None)
            if opening is None and any(tag.startswith(begins) for tag in REASONING):
                self._held = text  # it may still become a tag
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
                self._held = text[len(thought) :]
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
        """What was held back, and was no tag after all."""
        held, self._held = self._held, ""
        if held:
            yield Text(held) if self._closing is None else Reasoning(held, held)
