"""Whether a database answers: after a failure one statement a second tries it, all others fail immediately.

    answers ── a statement has no answer in time ──► fails, except for its probes ── one succeeds ──► answers

What fails by itself is a part: the server (or the file), a table that another session has locked, or a lock.
Without this, each statement of a request would wait for its own deadline. A probe waits `PROBE_SECONDS` for
a lock: it belongs to a request, which may be the only one.
"""

from __future__ import annotations

import threading
import time

RETRY_SECONDS = 1.0
"""Clients that retry give up after about 1.5 s."""
PROBE_SECONDS = 0.3


class DatabaseFailed(Exception):
    """The database is unavailable, full or damaged. ``passes``: a retry may succeed. ``of_disk``: its disk is
    full or failed."""

    def __init__(self, reason: str, *, passes: bool = True, of_disk: bool = False) -> None:
        super().__init__(reason)
        self.passes = passes
        self.of_disk = of_disk


class Availability:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self.has_answered = False
        """A statement of this process has succeeded."""
        self._lock = threading.Lock()
        self._probes: dict[str, float] = {}
        """The failing parts, and when each may be tried again."""

    def is_probe(self, part: str) -> bool:
        """Whether the caller's statement tries ``part`` again. Raises `DatabaseFailed` if ``part`` fails and
        the caller is not its next probe."""
        if not self._probes:
            return False
        with self._lock:
            now = time.monotonic()
            if (probe := self._probes.get(part)) is None:
                return False
            if now < probe:
                raise DatabaseFailed(f"it did not answer less than {RETRY_SECONDS:g} s ago")
            self._probes[part] = now + RETRY_SECONDS
            return True

    def report_failure(self, part: str) -> None:
        with self._lock:
            self._probes[part] = time.monotonic() + RETRY_SECONDS

    def report_success(self, part: str) -> None:
        self.has_answered = True
        if self._probes:
            with self._lock:
                self._probes.pop(part, None)
