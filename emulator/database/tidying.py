"""Removes the documents of a kind that have expired, and the oldest ones above the kind's budget.

No request waits for it: it runs in a thread of its own, once a minute and after many bytes, finds the
documents by reading, and removes them in small batches, between which others write. One process does it at a
time.
"""

from __future__ import annotations

import secrets
import threading
import time

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
_EXPIRED = "SELECT key FROM documents WHERE kind = :kind AND expires < :now LIMIT :found"
_OLDEST = (
    "SELECT key FROM (SELECT key, sum(bytes) OVER (ORDER BY stored DESC, key) AS total "
    "FROM documents WHERE kind = :kind) AS sizes WHERE total > :most LIMIT :found"
)
# Not if it was replaced since. "+": by the key, not by the index of `stored`, which has all of them.
_REMOVE = "DELETE FROM documents WHERE kind = :kind AND +stored <= :now AND key IN ({keys})"


class Tidying:
    """Safe to share between threads."""

    def __init__(self, database: Database, kind: str, max_bytes: int) -> None:
        self._database = database
        self._kind = kind
        self._max_bytes = max_bytes
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._is_running = False
        self._written = 0
        self._tidied = -_SECONDS

    def count(self, written: int) -> None:
        """``written`` bytes were stored."""
        with self._lock:
            self._written += written
            if self._is_running or not self._is_due():
                return
            self._is_running = True
        threading.Thread(target=self._run, name="tidying", daemon=True).start()

    def _is_due(self) -> bool:
        is_late = self._database.now() - self._tidied > _SECONDS
        return is_late or self._written > self._max_bytes // 16

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
                log.warning("old documents were not removed", kind=self._kind, reason=str(error))

    def _tidy(self) -> None:
        """Raises `DatabaseFailed`."""
        now = self._database.now()
        for query, values in ((_EXPIRED, {"now": now}), (_OLDEST, {"most": self._max_bytes})):
            changed = 1
            while changed and self._has_lease():
                rows = self._database.all(query, kind=self._kind, found=_FOUND, **values)
                keys = [key for (key,) in rows]
                changed = sum(
                    self._remove(keys[start : start + BATCH], now)
                    for start in range(0, len(keys), BATCH)
                )

    def _has_lease(self) -> bool:
        return claim(self._database, f"tidying {self._kind}", self._process, _LEASE_SECONDS)

    def _remove(self, keys: list[str], now: float) -> int:
        time.sleep(_PAUSE_SECONDS)
        names = {f"k{n}": key for n, key in enumerate(keys)}
        query = _REMOVE.format(keys=", ".join(f":{name}" for name in names))
        with self._database.transaction(f"tidying {self._kind}") as rows:
            rows.prepare_removal()
            return rows.run(query, kind=self._kind, now=now, **names)
