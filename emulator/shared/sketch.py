"""Counts of any number of clients in memory of a fixed size, which all workers share.

A count-min sketch (Cormode and Muthukrishnan, 2005): a client has one cell in each of `DEPTH` rows, which it
may share with others, and its count is the least of its cells. So a client never has less than it has used;
it has more only if each of its cells is also another's: 2 of 10,000 clients where 1,000 are counted. Whose
cells are where, only they can tell who know the run's secret.

Knows nothing of what is counted.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from hashlib import blake2b

DEPTH = 4
CELLS = 2**13
"""Of each row."""

_PLANE = DEPTH * CELLS
_CELL_BYTES = 4
_ZEROS = memoryview(bytes(_CELL_BYTES * _PLANE)).cast("I")
_HASHES = struct.Struct(f"<{DEPTH}H")


class Sketch:
    """So many planes of cells, to be made before workers are forked. One process at a time writes to a plane.

    A count is the sum of those in several planes. Memory is used from a plane's first change on.
    """

    def __init__(self, planes: int) -> None:
        self._secret = os.urandom(16)
        self._cells = memoryview(mmap.mmap(-1, _CELL_BYTES * _PLANE * planes)).cast("I")

    def cells(self, client: str) -> list[int]:
        """Those of a client, in each plane."""
        name = client.encode(errors="surrogatepass")
        digest = blake2b(name, key=self._secret, digest_size=_HASHES.size).digest()
        hashes = _HASHES.unpack(digest)
        return [row * CELLS + number % CELLS for row, number in enumerate(hashes)]

    def add(self, plane: int, cells: Sequence[int], amount: int) -> None:
        for cell in cells:
            self._cells[plane * _PLANE + cell] += amount

    def count(self, planes: Sequence[int], cells: Sequence[int]) -> int:
        counts, starts = self._cells, [plane * _PLANE for plane in planes]
        return min([sum([counts[start + cell] for start in starts]) for cell in cells])

    def clear(self, plane: int) -> None:
        self._cells[plane * _PLANE : (plane + 1) * _PLANE] = _ZEROS
