"""Split a reply that may start inside reasoning, because the model's chat template has opened it.

Such a reply thinks first, often with drafts of calls, and only closes the reasoning: ``...</think>``. Calls
in drafts must not run, so the splitter must know on which side of ``</think>`` the reply starts. It learns
that from earlier replies (`ReasoningStart`), from the model's name, or from this reply. States:

* **settled**: the start is known (OUTSIDE) or expected (INSIDE). Events pass. If a complete reply that was
  expected INSIDE never closes its reasoning, it is an answer: what was shown as reasoning is read once more.
* **streaming** (UNKNOWN): prose passes, since reasoning shown as prose does no harm. At the first block after
  prose the state becomes buffering: the block may be a draft.
* **buffering** (from the first event if the start is INSIDE_UNTIL_SHOWN or PERHAPS_INSIDE): nothing passes.

Streaming and buffering settle

* INSIDE, at a closing tag that nothing opened, also on a line inside a block: what is buffered is reasoning;
* OUTSIDE, at reasoning that the reply opens itself, or that arrives in a field of its own: the buffer passes;
* OUTSIDE, at the end of a complete reply: the buffer passes, and its calls run;
* never, if the reply is truncated: the buffer is reasoning (INSIDE_UNTIL_SHOWN) or prose without calls.

No block may pass, and so no call may run, before it is known that the block is not a draft. Sans-IO; knows
nothing of tools but their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import Enum
from itertools import pairwise
from typing import Protocol

from emulator.reading.events import BlockEnd, BlockStart, Event, Reasoning, Text, merge_events
from emulator.reading.splitter import Splitter, split
from emulator.reading.tags import REASONING


class ReasoningStart(Enum):
    """What is known about where a model's replies start."""

    OUTSIDE = "outside reasoning, or they open it themselves"
    INSIDE = "inside reasoning"
    INSIDE_UNTIL_SHOWN = "inside reasoning, unless the upstream removes it"
    PERHAPS_INSIDE = "inside reasoning with some chat templates"
    UNKNOWN = "unknown"


_CLOSINGS = "|".join(re.escape(tag) for tag in REASONING.values() if tag != "<|end|>")
_CLOSING_LINE = re.compile(rf"\n[ \t]{{0,20}}(?=({_CLOSINGS}))")
_REASONING_TAG = re.compile("|".join(map(re.escape, (*REASONING, *REASONING.values()))))
_REACH = 64
"""At least the length of the start of a line that closes reasoning."""


class EventSplitter(Protocol):
    """What splits one reply into events, in whichever form the model was asked to write it."""

    @property
    def reasoning_start(self) -> ReasoningStart | None: ...

    def reasoning_field_seen(self) -> list[Event]: ...

    def feed(self, text: str) -> list[Event]: ...

    def close(self, *, cut_off: bool = False) -> list[Event]: ...


class ReplySplitter:
    """`feed` and `close` as in `Splitter`; ``reasoning_start`` is what this reply has shown."""

    def __init__(self, names: Collection[str], reasoning_start: ReasoningStart) -> None:
        self._names = names
        self._expected = reasoning_start
        self._splitter = Splitter(names, reasoning_open=reasoning_start is ReasoningStart.INSIDE)
        self._settled = reasoning_start in (ReasoningStart.INSIDE, ReasoningStart.OUTSIDE)
        self._buffering = reasoning_start in (
            ReasoningStart.INSIDE_UNTIL_SHOWN,
            ReasoningStart.PERHAPS_INSIDE,
        )
        self._buffer: list[Event] = []
        self._has_prose = False
        self._text: list[str] = []
        """Everything fed before the start is settled."""
        self._passed = 0
        """The characters of it that have passed."""
        self._tail = ""
        self._is_empty = True
        self.reasoning_start: ReasoningStart | None = None

    def reasoning_field_seen(self) -> list[Event]:
        """The upstream sends reasoning in a separate field: the text has none. Returns the buffer."""
        if self._expected is ReasoningStart.INSIDE and self._is_empty:
            self._splitter = Splitter(self._names)
            self._expected = ReasoningStart.OUTSIDE
        return self._settle(ReasoningStart.OUTSIDE)

    def feed(self, text: str) -> list[Event]:
        """Return the events that can pass now."""
        if self._settled:
            return self._feed(text)
        # A closing tag counts before anything after it, however the text is cut.
        matches = _CLOSING_LINE.finditer(self._tail + text)
        ends = [match.end(1) - len(self._tail) for match in matches]
        cuts = [0, *(end for end in ends if end > 0), len(text)]
        return [event for start, end in pairwise(cuts) for event in self._feed(text[start:end])]

    def _feed(self, text: str) -> list[Event]:
        self._is_empty = self._is_empty and not text
        events = self._splitter.feed(text)
        if self._expected is ReasoningStart.INSIDE and not self._splitter.reasoning_ended:
            self._text.append(text)
        if self._settled:
            if self._splitter.unopened_reasoning or self._splitter.reasoning_ended:
                inside = (
                    self._splitter.unopened_reasoning or self._expected is ReasoningStart.INSIDE
                )
                fallback = self.reasoning_start or ReasoningStart.OUTSIDE
                self.reasoning_start = ReasoningStart.INSIDE if inside else fallback
            return events
        self._text.append(text)
        window = self._tail + text
        self._tail = window[-_REACH:]
        passed = self._pass_or_buffer(events)
        unsettled = self.reasoning_start is None
        if unsettled and self._buffering and _CLOSING_LINE.search(window):
            passed += self._close_inside_block()
        return passed

    def close(self, *, cut_off: bool = False) -> list[Event]:
        """Return the remaining events; ``cut_off`` if the reply was truncated."""
        events = self._splitter.close()
        if self._settled:
            ended = self._splitter.reasoning_ended or cut_off
            if self._expected is ReasoningStart.INSIDE and not ended:
                self.reasoning_start = ReasoningStart.UNKNOWN  # another template or model
                return [*events, *split("".join(self._text), self._names)]
            elif self._splitter.unopened_reasoning:
                self.reasoning_start = ReasoningStart.INSIDE
            return events
        events = self._pass_or_buffer(events)
        if self.reasoning_start is not None:
            return events
        self._settled = True
        if not cut_off:
            self.reasoning_start = ReasoningStart.OUTSIDE
            return [*events, *self._buffer]
        if self._expected is ReasoningStart.INSIDE_UNTIL_SHOWN:
            return [*events, *_as_reasoning(self._buffer)]
        return [*events, *_without_calls(self._buffer)]

    def _pass_or_buffer(self, events: list[Event]) -> list[Event]:
        """Settle at the first reasoning event; otherwise return the events that no closing tag can change."""
        place = next((n for n, event in enumerate(events) if _shows_reasoning(event)), None)
        if place is None:
            return self._buffer_blocks(events)
        if self._splitter.unopened_reasoning:
            before = _as_reasoning([*self._buffer, *events[:place]])
            self._buffer.clear()
            return [*before, *self._settle(ReasoningStart.INSIDE), *events[place:]]
        before = self._buffer_blocks(events[:place])
        return [*before, *self._settle(ReasoningStart.OUTSIDE), *events[place:]]

    def _buffer_blocks(self, events: Iterable[Event]) -> list[Event]:
        passed: list[Event] = []
        for event in events:
            self._buffering |= isinstance(event, BlockStart) and self._has_prose
            self._has_prose |= isinstance(event, Text) and bool(event.text.strip())
            (self._buffer if self._buffering else passed).append(event)
        self._passed += sum(len(event.raw) for event in passed)
        return passed

    def _close_inside_block(self) -> list[Event]:
        """A line starts with a closing tag: whatever block the splitter is in was a draft."""
        text = "".join(self._text)
        matches = _CLOSING_LINE.finditer(text, max(0, self._passed - _REACH))
        end = next((match.end() for match in matches if match.end() >= self._passed), None)
        if end is None:
            return []
        thought = text[self._passed : end]
        self._settle(ReasoningStart.INSIDE)
        self._splitter = Splitter(self._names)
        return merge_events([Reasoning(thought, thought), *self._splitter.feed(text[end:])])

    def _settle(self, start: ReasoningStart) -> list[Event]:
        """Return the buffer, unless the caller has used it otherwise."""
        self.reasoning_start = start
        self._settled = True
        events, self._buffer = self._buffer, []
        self._text.clear()
        return events


def _shows_reasoning(event: Event) -> bool:
    """Return True for reasoning and its tags. A stray tag of a call is an empty `Reasoning` as well."""
    return isinstance(event, Reasoning) and bool(event.text or _REASONING_TAG.search(event.raw))


def _as_reasoning(events: Iterable[Event]) -> list[Event]:
    raw = "".join(event.raw for event in events)
    return [Reasoning(raw, raw)] if raw else []


def _without_calls(events: list[Event]) -> list[Event]:
    """The events with complete blocks as prose. A truncated block stays: nothing of it is called anyway."""
    start = last = 0
    for place, event in enumerate(events):
        if isinstance(event, BlockStart):
            start = place
        elif isinstance(event, BlockEnd):
            last = start if event.at_reply_end else place + 1
    prose = "".join(event.raw for event in events[:last])
    return [*([Text(prose)] if prose else []), *events[last:]]
