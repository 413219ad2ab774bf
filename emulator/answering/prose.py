"""The prose of a reply: what is sent immediately and what is buffered. Knows nothing of code."""

from __future__ import annotations

from emulator.answering.stop_filter import StopFilter


class Prose:
    """Text in, text out as soon as it may be sent.

    White space is sent only when words follow it: before a call it has no meaning. With ``hold`` everything
    is buffered until `close`: under ``required`` prose is no answer, in a repaired turn it is one only if
    no call follows, and an answer with a required format must be complete before it can be checked.
    """

    def __init__(self, stops: StopFilter, *, hold: bool, lead: str = "") -> None:
        """``lead`` separates buffered prose from what earlier turns have sent."""
        self._stops = stops
        self._lead = lead
        self._hold = hold
        self._space: list[str] = []
        self._buffer: list[str] = []
        self._has_words = False
        self._sent: list[str] = []

    @property
    def sent(self) -> str:
        return "".join(self._sent)

    def mark_sent(self, text: str) -> None:
        self._sent.append(text)

    @property
    def stopped(self) -> bool:
        """Whether one of the client's stop strings was found."""
        return self._stops.stopped

    @property
    def stop_sequence(self) -> str | None:
        return self._stops.matched

    def feed(self, text: str) -> str:
        """Return the text to send now."""
        words = text.rstrip()
        if not words:
            if self._has_words:
                self._space.append(text)
            return ""
        space = "".join(self._space)
        self._space = [text[len(words) :]]
        words = space + words if self._has_words else words.lstrip()
        self._has_words = True
        words = self._stops.feed(words)
        if self._hold:
            self._buffer.append(words)
            return ""
        self.mark_sent(words)
        return words

    def close(self) -> str:
        """Return everything that is still buffered."""
        rest = "".join(self._buffer) + self._stops.close()
        return self._lead + rest if rest else ""
