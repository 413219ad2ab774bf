"""Split a reply that may begin inside reasoning, because the model's chat template has opened it.

Such a reply thinks aloud, with drafts of calls, and only closes: ``...</think>``. Whether it does is known
from earlier replies of the model; while it is not, what a ``</think>`` would take back is held. Sans-IO;
knows nothing of tools but their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import Enum

from emulator.reading.events import BlockEnd, BlockStart, Event, Reasoning, Text, merge_events
from emulator.reading.splitter import Splitter
from emulator.reading.tags import REASONING


class ReasoningStart(Enum):
    """How the replies of a model begin, as far as is known."""

    OUTSIDE = "outside reasoning, or they open it themselves"
    INSIDE = "inside reasoning"
    INSIDE_UNTIL_SHOWN = "inside reasoning, if the upstream does not take it out"
    PERHAPS_INSIDE = "inside reasoning with some templates"
    UNKNOWN = "unknown"


_CLOSINGS = "|".join(re.escape(tag) for tag in REASONING.values() if tag != "<|end|>")
_LINE_CLOSES = re.compile(rf"\n[ \t]{{0,20}}(?={_CLOSINGS})")
_REACH = 64
"""More characters than a line that closes reasoning begins with."""


class ReplySplitter:
    """`Splitter`'s `feed` and `close`; ``reasoning_start`` says what this reply has shown of the model."""

    def __init__(self, names: Collection[str], reasoning_start: ReasoningStart) -> None:
        self._names = names
        self._known = reasoning_start
        self._splitter = Splitter(names, reasoning_open=reasoning_start is ReasoningStart.INSIDE)
        self._settled = reasoning_start in (ReasoningStart.INSIDE, ReasoningStart.OUTSIDE)
        """Whether it is known how this reply starts."""
        self._hold_words = reasoning_start in (
            ReasoningStart.INSIDE_UNTIL_SHOWN,
            ReasoningStart.PERHAPS_INSIDE,
        )
        self._holds = self._hold_words
        self._held: list[Event] = []
        self._spoke = False
        self._text: list[str] = []
        self._size = 0
        self._sent = 0
        self._tail = ""
        self.reasoning_start: ReasoningStart | None = None

    def apart(self) -> list[Event]:
        """The upstream sends the reasoning in a field of its own: there is none in the text."""
        if self._known is ReasoningStart.INSIDE and not self._size:
            self._splitter = Splitter(self._names)
            self._known = ReasoningStart.OUTSIDE
        return self._settle(ReasoningStart.OUTSIDE)

    def feed(self, text: str) -> list[Event]:
        """What can be said now."""
        self._size += len(text)
        events = self._splitter.feed(text)
        if self._settled:
            if self._splitter.unopened_reasoning or self._splitter.reasoning_ended:
                self.reasoning_start = self._shown()
            return events
        self._text.append(text)
        window = self._tail + text
        self._tail = window[-_REACH:]
        out = self._considered(events)
        if not self._is_settled() and self._holds and _LINE_CLOSES.search(window):
            out += self._closed_in_a_block()
        return out

    def close(self, *, cut_off: bool = False) -> list[Event]:
        """The rest; with ``cut_off`` the reply was to go on."""
        events = self._splitter.close()
        if self._settled:
            self.reasoning_start = self._at_the_end(cut_off=cut_off)
            return events
        events, settled = self._considered(events), self._is_settled()
        if settled:
            return events
        self._settled = True
        if not cut_off:
            self.reasoning_start = ReasoningStart.OUTSIDE
            return [*events, *self._held]
        if self._known is ReasoningStart.INSIDE_UNTIL_SHOWN:
            return [*events, *_as_reasoning(self._held)]
        return [*events, *_uncalled(self._held)]

    # While it is not known

    def _considered(self, events: list[Event]) -> list[Event]:
        """Of ``events`` those that no closing tag would take back; all, once that is settled."""
        for place, event in enumerate(events):
            if isinstance(event, Reasoning):
                inside = self._splitter.unopened_reasoning
                if inside:
                    before = _as_reasoning([*self._held, *events[:place]])
                    self._held.clear()
                    return [*before, *self._settle(ReasoningStart.INSIDE), *events[place:]]
                return [
                    *self._held_with(events[:place]),
                    *self._settle(ReasoningStart.OUTSIDE),
                    *events[place:],
                ]
        return self._held_with(events)

    def _held_with(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            self._holds = self._holds or (isinstance(event, BlockStart) and self._spoke)
            self._spoke = self._spoke or (isinstance(event, Text) and bool(event.text.strip()))
            (self._held if self._holds else out).append(event)
        self._sent += sum(len(event.raw) for event in out)
        return out

    def _closed_in_a_block(self) -> list[Event]:
        """A line begins with a closing tag: whatever block the splitter is in, that was a draft."""
        text = "".join(self._text)
        ends = (match.end() for match in _LINE_CLOSES.finditer(text, max(0, self._sent - _REACH)))
        end = next((end for end in ends if end >= self._sent), None)
        if end is None:
            return []
        thought = text[self._sent : end]
        self._settle(ReasoningStart.INSIDE)
        self._splitter = Splitter(self._names)
        return merge_events([Reasoning(thought, thought), *self._splitter.feed(text[end:])])

    def _is_settled(self) -> bool:
        return self._settled

    def _settle(self, reasoning_start: ReasoningStart) -> list[Event]:
        """It is known now; what was held and is not taken back."""
        self.reasoning_start = reasoning_start
        self._settled = True
        events, self._held = self._held, []
        self._text.clear()
        return events

    # Once it is known

    def _shown(self) -> ReasoningStart:
        inside = self._splitter.unopened_reasoning or self._known is ReasoningStart.INSIDE
        return ReasoningStart.INSIDE if inside else self.reasoning_start or ReasoningStart.OUTSIDE

    def _at_the_end(self, *, cut_off: bool) -> ReasoningStart | None:
        if self._known is ReasoningStart.INSIDE and not (self._splitter.reasoning_ended or cut_off):
            return ReasoningStart.UNKNOWN  # it does no longer
        if self._splitter.unopened_reasoning:
            return ReasoningStart.INSIDE
        return self.reasoning_start


def _as_reasoning(events: Iterable[Event]) -> list[Event]:
    raw = "".join(event.raw for event in events)
    return [Reasoning(raw, raw)] if raw else []


def _uncalled(events: list[Event]) -> list[Event]:
    """The events with their blocks as words: but for the one that was cut, of which nothing is called."""
    begun = last = 0
    for place, event in enumerate(events):
        if isinstance(event, BlockStart):
            begun = place
        elif isinstance(event, BlockEnd):
            last = begun if event.at_reply_end else place + 1
    words = "".join(event.raw for event in events[:last])
    return [*([Text(words)] if words else []), *events[last:]]
