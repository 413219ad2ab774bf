"""Leases: a limited number of holders of a name, over all processes. A process that dies loses its leases.

    free ── take ──► held ── release ──► free
                      │ renewed every `_RENEW_SECONDS` └ not renewed for `LEASE_SECONDS` (the holder is
                      dead, or cannot reach the database) ──► free

A holder that could not renew in time must assume that another one has the name: `Lease.is_held` is then
False, `LEASE_SECONDS` after the last renewal by the holder's own clock, which is before the name is free.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from emulator.core.client_disconnect import has_disconnected
from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database

log = structlog.get_logger()

LEASE_SECONDS = 10.0
TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS leases (name TEXT NOT NULL, holder TEXT NOT NULL, process TEXT NOT NULL, "
        "until DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, holder))"
    ),
    "CREATE INDEX IF NOT EXISTS leases_process ON leases (process)",
)
_CLAIM = (
    "INSERT INTO leases (name, holder, process, until) VALUES (:name, '', :process, :until) "
    "ON CONFLICT (name, holder) DO UPDATE SET process = excluded.process, until = excluded.until "
    "WHERE leases.until < :now OR leases.process = excluded.process"
)
_RENEW_SECONDS = 2.5
_POLL_SECONDS = (0.005, 0.1)
"""First and longest pause between two attempts."""


class LeaseTaken(Exception):
    """Others hold all leases of the name."""


class Lease:
    def __init__(self, leases: Leases, name: str) -> None:
        self.name = name
        self.holder = secrets.token_hex(8)
        self.renewed = time.monotonic()
        self.on_lost: Callable[[], None] = lambda: None
        """Called once if the lease is lost."""
        self._leases = leases

    def is_held(self) -> bool:
        """Return False once another process may have the lease."""
        return time.monotonic() - self.renewed < LEASE_SECONDS

    def release(self) -> None:
        """Callable twice. If the database fails, the lease expires."""
        self._leases.release(self)


def claim(database: Database, name: str, process: str, seconds: float) -> bool:
    """Return True if ``process`` now has the only lease of ``name``, which ends after ``seconds``.

    It may claim it again to keep it. Raises `DatabaseFailed`.
    """
    now = database.now()
    return bool(database.run(_CLAIM, name=name, process=process, now=now, until=now + seconds))


class Leases:
    """The leases of this process. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._by_holder: dict[str, Lease] = {}
        self._thread: threading.Thread | None = None

    def take(self, name: str, most: int = 1, seconds: float = 0.0) -> Lease | None:
        """One of ``most`` leases of ``name``, or None.

        Waits for ``seconds``, unless the client disconnects. Raises `DatabaseFailed`.
        """
        until = time.monotonic() + seconds
        pause, longest = _POLL_SECONDS
        while (lease := self._take(name, most)) is None:
            remaining = until - time.monotonic()
            if remaining <= 0 or has_disconnected():
                return None
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, longest)
        return lease

    @contextmanager
    def holding(self, name: str, seconds: float = 0.0) -> Iterator[Lease]:
        """The only lease of ``name``, for the block. Raises `LeaseTaken`, `DatabaseFailed`."""
        lease = self.take(name, seconds=seconds)
        if lease is None:
            raise LeaseTaken
        try:
            yield lease
        finally:
            lease.release()

    def release(self, lease: Lease) -> None:
        with self._lock:
            if self._by_holder.pop(lease.holder, None) is None:
                return
        with suppress(DatabaseFailed):  # then it expires
            query = "DELETE FROM leases WHERE name = :name AND holder = :holder"
            self._database.run(query, name=lease.name, holder=lease.holder)

    def end(self, name: str) -> None:
        """Take all leases of ``name`` from their holders. Raises `DatabaseFailed`."""
        self._database.run("DELETE FROM leases WHERE name = :name", name=name)

    def is_taken(self, name: str) -> bool:
        """Return True if anybody holds a lease of ``name``. Raises `DatabaseFailed`."""
        query = "SELECT 1 FROM leases WHERE name = :name AND until >= :now"
        return self._database.one(query, name=name, now=self._database.now()) is not None

    def close(self) -> None:
        """Release all leases of this process."""
        with self._lock:
            self._by_holder.clear()
        with suppress(DatabaseFailed):
            self._database.run("DELETE FROM leases WHERE process = :process", process=self._process)

    def _take(self, name: str, most: int) -> Lease | None:
        lease = Lease(self, name)
        with self._database.transaction(name) as rows:
            rows.run(
                "DELETE FROM leases WHERE name = :name AND until < :now", name=name, now=rows.now
            )
            (count,) = rows.one("SELECT count(*) FROM leases WHERE name = :name", name=name)
            if count >= most:
                return None
            rows.run(
                "INSERT INTO leases (name, holder, process, until) "
                "VALUES (:name, :holder, :process, :until)",
                name=name,
                holder=lease.holder,
                process=self._process,
                until=rows.now + LEASE_SECONDS,
            )
        with self._lock:
            self._by_holder[lease.holder] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._thread.start()
        return lease

    def _renew(self) -> None:
        """Renew what this process holds until that is nothing."""
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                leases = [*self._by_holder.values()]
                if not leases:
                    self._thread = None
                    return
            try:
                self._renew_all(leases)
            except DatabaseFailed as error:
                if self._by_holder:  # else it has been closed meanwhile
                    log.warning("leases were not renewed", reason=str(error))
            except Exception:  # of a holder's on_lost: the others' leases depend on this thread
                log.exception("a lost lease was not handled")

    def _renew_all(self, leases: list[Lease]) -> None:
        """Raises `DatabaseFailed`, also from `Lease.on_lost`: the next round handles the other leases."""
        sent = time.monotonic()
        known = self._renewed()
        for lease in leases:
            if lease.holder in known:
                lease.renewed = sent
            elif lease.is_held() and lease.holder in self._by_holder:
                lease.renewed = -LEASE_SECONDS
                log.warning("a lease was lost", lease=lease.name)
                lease.on_lost()

    def _renewed(self) -> set[str]:
        with self._database.transaction(self._process) as rows:
            rows.run(
                "UPDATE leases SET until = :until WHERE process = :process AND until >= :now",
                until=rows.now + LEASE_SECONDS,
                process=self._process,
                now=rows.now,
            )
            query = "SELECT holder FROM leases WHERE process = :process AND until >= :now"
            return {holder for (holder,) in rows.all(query, process=self._process, now=rows.now)}
