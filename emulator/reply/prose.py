"""The prose of a reply: what is sent immediately, what is buffered, and where a stop string ends it. Knows
nothing of code."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.reading.text_buffer import partial_match


class StopFilter:
    """Passes prose up to the first stop string of the client; buffers what may be the start of one. Stop
    strings must not cut a program."""

    def __init__(self, stops: str | Sequence[str] | None) -> None:
        self._stops = [stops] if isinstance(stops, str) else [stop for stop in stops or () if stop]
        self._buffer = ""
        self.matched: str | None = None
        """The stop string that came first."""

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def feed(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._buffer + text
        matches = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if matches:
            place, self.matched = min(matches, key=lambda match: match[0])
            self._buffer = ""
            return text[:place]
        size = max((partial_match(text, stop) for stop in self._stops), default=0)
        self._buffer = text[len(text) - size :]
        return text[: len(text) - size]

    def close(self) -> str:
        """Return the buffered text, which did not become a stop string."""
        rest, self._buffer = self._buffer, ""
        return rest


class Prose:
    """Text in, text out as soon as it may be sent.

    White space is sent only when words follow it: before a call it has no meaning. With ``hold`` everything
    is buffered until `close`: under ``required`` prose is no answer, in a repaired turn it is one only if
    no call follows, and an answer with a required format must be complete before it can be checked.
    """

    shows_afterwords = False
    """Whether words after a program are shown, too."""

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
    def is_pending(self) -> bool:
        """Whether words are buffered."""
        return any(self._buffer)

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
        """Return everything that is still buffered, once."""
        rest = "".join(self._buffer) + self._stops.close()
        self._buffer.clear()
        return self._lead + rest if rest and not self._sent else rest
