"""Whole numbers by name that all workers read and write, in memory that they share. No lock, and none needed
where a change that another one overwrites does no harm. Knows nothing of what they mean.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

_BYTES = 8


class Registers:
    """So many registers of each name, 0 at first. To be made before workers are forked."""

    def __init__(self, names: Sequence[str], count: int) -> None:
        self._names = list(names)
        self._count = count
        size = _BYTES * count * len(self._names)
        self._memory = memoryview(mmap.mmap(-1, size)).cast("q")

    def of(self, name: str) -> memoryview[int]:
        first = self._names.index(name) * self._count
        return self._memory[first : first + self._count]
