"""A progress bar on a terminal; nothing elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

_BAR = 20


class Progress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._skipped = 0
        self._began = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print(file=sys.stderr)

    def advance(self, summary: str) -> None:
        """One more answer is known; ``summary`` is shown next to the bar."""
        self._done += 1
        if not self._is_shown:
            return
        seconds = time.monotonic() - self._began
        if seconds < 0.1 * self._done:  # it was known from an earlier run
            self._skipped = self._done
        measured = self._done - self._skipped
        minutes = seconds / measured * (self._total - self._done) / 60 if measured else 0
        bar = "#" * (_BAR * self._done // self._total)
        line = f"[{bar:-<{_BAR}}] {self._done}/{self._total}, {minutes:.0f} min left  {summary}"
        print(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", file=sys.stderr)
