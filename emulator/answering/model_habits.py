"""How each model has been writing of late, for each client: its calls, and how its replies begin.

In memory only; bounded; shared by all threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

from emulator.answering.reply_splitter import ReasoningStart

_MAX_KEYS = 256
_MAX_DIALECTS = 8
_FIRM_AFTER = 4

ModelKey = tuple[str, str, str]
"""Upstream, model and client."""


class ModelHabits:
    """`record_dialects` is called after each turn with calls, `usual_dialect` before the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[ModelKey, deque[str]] = OrderedDict()
        self._beginnings: OrderedDict[tuple[str, ...], ReasoningStart] = OrderedDict()

    def record_dialects(self, key: ModelKey, dialects: Collection[str]) -> None:
        with self._lock:
            seen = self._seen.setdefault(key, deque(maxlen=_MAX_DIALECTS))
            seen.extend(sorted(dialects))
            self._seen.move_to_end(key)
            if len(self._seen) > _MAX_KEYS:
                self._seen.popitem(last=False)

    def usual_dialect(self, key: ModelKey) -> str:
        """The dialect in which the model has written its last calls; ``python`` until that is firm."""
        with self._lock:
            seen = list(self._seen.get(key, ()))[-_FIRM_AFTER:]
        return seen[0] if len(seen) == _FIRM_AFTER and len(set(seen)) == 1 else "python"

    def record_start(self, key: tuple[str, ...], start: ReasoningStart) -> None:
        """``key`` says whose replies: a `ModelKey`, and what turns the model's reasoning on and off."""
        with self._lock:
            self._beginnings[key] = start
            self._beginnings.move_to_end(key)
            if len(self._beginnings) > _MAX_KEYS:
                self._beginnings.popitem(last=False)

    def reasoning_start(self, key: tuple[str, ...]) -> ReasoningStart:
        with self._lock:
            return self._beginnings.get(key, ReasoningStart.UNKNOWN)
