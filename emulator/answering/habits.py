"""How each model has been writing its calls of late, for each client.

In memory only; bounded; shared by all threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

_HABITATS = 256
_REMEMBERED = 8
_FIRM = 4

Habitat = tuple[str, str, str]
"""Upstream, model and client."""


class Habits:
    """`told` after each turn with calls, `of` before the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Habitat, deque[str]] = OrderedDict()

    def told(self, habitat: Habitat, dialects: Collection[str]) -> None:
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
