"""How each model has been writing of late, for each client: its calls, and how its replies begin.

In memory only; bounded; shared by all threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

from emulator.answering.reply_splitter import Begins

_HABITATS = 256
_REMEMBERED = 8
_FIRM = 4

Habitat = tuple[str, str, str]
"""Upstream, model and client."""


class Habits:
    """`told` after each turn with calls, `of` before the next; `told_beginning` and `beginning` likewise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Habitat, deque[str]] = OrderedDict()
        self._beginnings: OrderedDict[tuple[str, ...], Begins] = OrderedDict()

    def remember(self, habitat: Habitat, dialects: Collection[str]) -> None:
        with self._lock:
            seen = self._seen.setdefault(habitat, deque(maxlen=_REMEMBERED))
            seen.extend(sorted(dialects))
            self._seen.move_to_end(habitat)
            if len(self._seen) > _HABITATS:
                self._seen.popitem(last=False)

    def of(self, habitat: Habitat) -> str:
        """The dialect in which the model has written its last calls; ``python`` until that is firm."""
        with self._lock:
            seen = list(self._seen.get(habitat, ()))[-_FIRM:]
        return seen[0] if len(seen) == _FIRM and len(set(seen)) == 1 else "python"

    def told_beginning(self, key: tuple[str, ...], begins: Begins) -> None:
        """``key`` says whose replies: a `Habitat`, and what turns the model's reasoning on and off."""
        with self._lock:
            self._beginnings[key] = begins
            self._beginnings.move_to_end(key)
            if len(self._beginnings) > _HABITATS:
                self._beginnings.popitem(last=False)

    def beginning(self, key: tuple[str, ...]) -> Begins:
        with self._lock:
            return self._beginnings.get(key, Begins.UNKNOWN)
