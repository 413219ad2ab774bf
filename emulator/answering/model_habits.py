"""How each model has recently written for each client: the dialect of its calls and how its replies start.

Kept in memory, bounded, and shared by all threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

from emulator.reading.reply_splitter import ReasoningStart

_MAX_KEYS = 256
_FIRM_AFTER = 4
"""Turns in the same dialect, or replies that start outside reasoning, that make a habit."""

ModelKey = tuple[str, ...]
"""Upstream, model and client; for reasoning also the request's reasoning switches."""


class ModelHabits:
    """`record_dialects` and `record_start` after a turn; `usual_dialect` and `reasoning_start` before one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dialects: OrderedDict[ModelKey, deque[str]] = OrderedDict()
        self._starts: OrderedDict[ModelKey, list[ReasoningStart]] = OrderedDict()

    def record_dialects(self, key: ModelKey, dialects: Collection[str]) -> None:
        with self._lock:
            recent = self._dialects.setdefault(key, deque(maxlen=_FIRM_AFTER))
            recent.extend(sorted(dialects))
            self._dialects.move_to_end(key)
            if len(self._dialects) > _MAX_KEYS:
                self._dialects.popitem(last=False)

    def usual_dialect(self, key: ModelKey) -> str:
        """The dialect of the model's last calls if they agree, otherwise ``python``."""
        with self._lock:
            recent = list(self._dialects.get(key, ()))
        return recent[0] if len(recent) == _FIRM_AFTER and len(set(recent)) == 1 else "python"

    def record_start(self, key: ModelKey, start: ReasoningStart) -> None:
        with self._lock:
            starts = self._starts.setdefault(key, [])
            starts.append(start)
            # A reply that started inside is remembered forever: the name may belong to a router.
            if start is ReasoningStart.OUTSIDE and len(starts) > _FIRM_AFTER:
                starts.remove(start)
            elif start is ReasoningStart.INSIDE:
                starts[:] = [start]
            self._starts.move_to_end(key)
            if len(self._starts) > _MAX_KEYS:
                self._starts.popitem(last=False)

    def reasoning_start(self, key: ModelKey, default: ReasoningStart) -> ReasoningStart:
        """INSIDE after a reply that started inside; OUTSIDE if several replies did, and none inside;
        ``default`` before the first reply."""
        with self._lock:
            starts = list(self._starts.get(key, ()))
        if not starts:
            return default
        firm = starts == [ReasoningStart.OUTSIDE] * _FIRM_AFTER
        return starts[-1] if firm or starts[-1] is ReasoningStart.INSIDE else ReasoningStart.UNKNOWN
