"""The words of a reply: what of them may be told at once, what is held. Knows nothing of code."""

from __future__ import annotations

from emulator.answering.stop_filter import StopFilter


class Prose:
    """Words in, words out as soon as they may be told.

    White space is told only once words follow: in front of a call it means nothing. With ``hold`` nothing
    is told before `close`: under ``required`` prose is no answer, in a repaired turn it is one only if no
    call follows, and an answer that must have a form is told when it has.
    """

    def __init__(self, stops: StopFilter, *, hold: bool, lead: str = "") -> None:
        """``lead`` stands in front of held words, to part them from what earlier turns told."""
        self._stops = stops
        self._lead = lead
        self._hold = hold
        self._space: list[str] = []
        self._held: list[str] = []
        self._begun = False
        self._told: list[str] = []

    @property
    def sent(self) -> str:
        return "".join(self._told)

    def tell(self, words: str) -> None:
        """Note that ``words`` are told."""
        self._told.append(words)

    @property
    def stopped(self) -> bool:
        """One of the client's stop strings has come."""
        return self._stops.stopped

    @property
    def stop_sequence(self) -> str | None:
        """Which one."""
        return self._stops.matched

    def feed(self, text: str) -> str:
        """The words to tell now."""
        words = text.rstrip()
        if not words:
            if self._begun:
                self._space.append(text)
            return ""
        space = "".join(self._space)
        self._space = [text[len(words) :]]
        words = space + words if self._begun else words.lstrip()
        self._begun = True
        words = self._stops.feed(words)
        if self._hold:
            self._held.append(words)
            return ""
        self.tell(words)
        return words

    def close(self) -> str:
        """All that was held, and no stop string after all."""
        rest = "".join(self._held) + self._stops.close()
        return self._lead + rest if rest else ""
