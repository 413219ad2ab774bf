"""Find the client's stop strings in the prose of an answer. They must not cut a program."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.reading.text_buffer import partial_match


class StopFilter:
    """Passes text up to the first stop string; buffers what may be the start of one."""

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
