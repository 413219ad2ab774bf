"""The client's own stop strings, looked for in the answer's prose only: they must not cut a program."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.reading.text_buffer import partial_match


class StopFilter:
    """Text in, text out up to the first stop string; holds back what may be the beginning of one."""

    def __init__(self, stops: str | Sequence[str] | None) -> None:
        self._stops = [stops] if isinstance(stops, str) else [stop for stop in stops or () if stop]
        self._held = ""
        self.matched: str | None = None
        """The stop string that came first."""

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def feed(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, self.matched = min(found, key=lambda match: match[0])
            self._held = ""
            return text[:place]
        keep = max((partial_match(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """What was held back, and was no stop string after all."""
        held, self._held = self._held, ""
        return held
