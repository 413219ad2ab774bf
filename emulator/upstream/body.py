"""The body of an answer that is passed on. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self


class Body:
    """Its bytes as they come, and what is to be done once when they have been read or are left.

    A generator's ``finally`` is not run where nothing was read at all: a HEAD, or a client that left early.
    """

    def __init__(self, pieces: Iterator[bytes], finish: Callable[[], None]) -> None:
        self._pieces = pieces
        self._finish: Callable[[], None] | None = finish

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
