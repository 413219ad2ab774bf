"""Removes rows that are no longer needed: documents, leases and counts that have expired.

No request waits for it: it runs in a thread of its own, once a minute and after many bytes, finds the
rows by reading, and removes them in small batches, between which others write. One process does it at a
time.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database
from emulator.database.leases import claim

log = structlog.get_logger()

BATCH = 500
"""Removed in one transaction, during which SQLite has no other writer."""
_PAUSE_SECONDS = 0.05
"""Between two batches: locks are not fair, and another process looks for SQLite's every few milliseconds."""
_FOUND = 10_000
_SECONDS = 60.0
_LEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Removal:
    """Rows of one table that are no longer needed."""

    find: str
    """Selects the keys of some; ``:now`` is the time."""
    remove: str
    """Removes those of ``{keys}`` that are still not needed."""
    values: Mapping[str, object] = field(default_factory=dict)


class Tidying:
    """Safe to share between threads."""

    def __init__(
        self, database: Database, name: str, *removals: Removal, due_bytes: float = math.inf
    ) -> None:
        """``name`` is that of the lease; ``due_bytes``: it runs also after that many bytes."""
        self._database = database
        self._name = name
        self._removals = removals
        self._due_bytes = due_bytes
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._is_running = False
        self._written = 0
        self._tidied = -_SECONDS

    def count(self, written: int = 0) -> None:
        """``written`` bytes were stored."""
        with self._lock:
            self._written += written
            if self._is_running or not self._is_due():
                return
            self._is_running = True
        threading.Thread(target=self._run, name="tidying", daemon=True).start()

    def _is_due(self) -> bool:
        is_late = self._database.now() - self._tidied > _SECONDS
        return is_late or self._written > self._due_bytes

    def _run(self) -> None:
        while True:
            with self._lock:
                self._is_running = self._is_due()
                if not self._is_running:
                    return
                self._written, self._tidied = 0, self._database.now()
            try:
                self._tidy()
            except DatabaseFailed as error:
                log.warning("old rows were not removed", rows=self._name, reason=str(error))

    def _tidy(self) -> None:
        """Raises `DatabaseFailed`."""
        now = self._database.now()
        for removal in self._removals:
            changed = 1
            while changed and self._has_lease():
                find = f"{removal.find} LIMIT {_FOUND}"
                keys = [key for (key,) in self._database.all(find, now=now, **removal.values)]
                batches = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
                changed = sum(self._remove(removal, batch, now) for batch in batches)

    def _has_lease(self) -> bool:
        return claim(self._database, f"tidying {self._name}", self._process, _LEASE_SECONDS)

    def _remove(self, removal: Removal, keys: list[str], now: float) -> int:
        time.sleep(_PAUSE_SECONDS)
        names = {f"k{n}": key for n, key in enumerate(keys)}
        query = removal.remove.format(keys=", ".join(f":{name}" for name in names))
        with self._database.transaction(f"tidying {self._name}") as rows:
            rows.prepare_removal()
            return rows.run(query, now=now, **names, **removal.values)
