"""Reasoning between tags at the start of an answer that otherwise stays unchanged. Knows no calls."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from emulator.reading.events import Event, Reasoning, Text
from emulator.reading.reasoning import scan_reasoning
from emulator.reading.tags import REASONING
from emulator.reading.text_buffer import TextBuffer


class LeadingReasoning:
    """``feed(text)``, then ``close()``, as in the splitter. Only the beginning of the text is
    examined. White space before and after the reasoning is dropped.
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
