"""How each model has been writing its calls of late. In memory only; bounded; shared by all threads."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection

_MODELS = 256
_REMEMBERED = 8
_FIRM = 4


class Habits:
    """`told` after each turn with calls, `of` before the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, deque[str]] = OrderedDict()

    def told(self, model: str, dialects: Collection[str]) -> None:
        with self._lock:
            seen = self._seen.setdefault(model, deque(maxlen=_REMEMBERED))
            seen.extend(sorted(dialects))
            self._seen.move_to_end(model)
            if len(self._seen) > _MODELS:
                self._seen.popitem(last=False)

    def of(self, model: str) -> str:
        """The dialect in which the model has written its last calls; ``python`` until that is firm."""
        with self._lock:
            seen = list(self._seen.get(model, ()))[-_FIRM:]
        return seen[0] if len(seen) == _FIRM and len(set(seen)) == 1 else "python"
