"""Leases: a limited number of holders of a name, over all processes. A process that dies loses its leases.

Each of the ``most`` leases of a name has a number, and a row with that number while it is held. One statement
takes any that is free, without a lock: of two that choose the same, one finds its row taken, and tries again.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

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
_TAKE = (
    "WITH RECURSIVE live AS (SELECT holder FROM leases WHERE name = :name AND until >= {clock}), "
    "numbers(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers "
    "WHERE number + 1 < :most AND number < (SELECT count(*) FROM live) + 64) "
    "INSERT INTO leases (name, holder, process, until) "
    "SELECT :name, CAST(number AS TEXT), :process, {clock} + :seconds FROM numbers "
    "WHERE CAST(number AS TEXT) NOT IN (SELECT holder FROM live) AND (SELECT count(*) FROM live) < :most "
    "ORDER BY random() LIMIT 1 "
    "ON CONFLICT (name, holder) DO UPDATE SET process = excluded.process, until = excluded.until "
    "WHERE leases.until < {clock} RETURNING holder"
)
"""The version before gives its leases random names instead of numbers: they count."""
_RENEW = (
    "UPDATE leases SET until = {clock} + :seconds WHERE process = :process AND until >= {clock} "
    "RETURNING name, holder"
)
_RENEW_SECONDS = 2.5
_AT_ONCE = 50
"""Leases that one statement releases."""
_IDLE_SECONDS = 10.0
"""After which the thread that releases them ends."""
_POLL_SECONDS = (0.005, 0.1)
"""First and longest pause between two attempts."""


class LeaseTaken(Exception):
    """Others hold all leases of the name."""


class Lease:
    def __init__(self, leases: Leases, name: str, number: str, renewed: float) -> None:
        self.name = name
        self.number = number
        self.renewed = renewed
        """When the last statement that renewed it was sent, by `time.monotonic`."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called once if the lease is lost."""
        self._leases = leases

    def is_held(self) -> bool:
        """Return False once another process may have the lease."""
        return time.monotonic() - self.renewed < LEASE_SECONDS

    def release(self) -> None:
        """Callable twice. If the database fails, the lease expires."""
        self._leases.release(self)

    def release_later(self) -> None:
        """As `release`, without waiting for the database: it is released with others, in one statement."""
        self._leases.release_later(self)


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
        self._by_key: dict[tuple[str, str], Lease] = {}
        self._replaced: set[Lease] = set()
        """Leases that were lost and taken again by this process, before their holders were notified."""
        self._thread: threading.Thread | None = None
        self._released: SimpleQueue[tuple[str, str]] = SimpleQueue()
        """The keys of leases that are to be released."""
        self._is_releasing = False

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
            is_held = self._forget(lease)
        if is_held:
            self._delete([(lease.name, lease.number)])

    def release_later(self, lease: Lease) -> None:
        with self._lock:
            if not self._forget(lease):
                return
            self._released.put((lease.name, lease.number))
            if not self._is_releasing:
                self._is_releasing = True
                thread = threading.Thread(target=self._release, name="released leases", daemon=True)
                thread.start()

    def _forget(self, lease: Lease) -> bool:
        """Return True if this process held it. With the lock."""
        self._replaced.discard(lease)
        key = (lease.name, lease.number)
        return self._by_key.get(key) is lease and self._by_key.pop(key) is lease

    def _release(self) -> None:
        while True:
            try:
                keys = [self._released.get(timeout=_IDLE_SECONDS)]
            except Empty:
                with self._lock:
                    if self._released.empty():
                        self._is_releasing = False
                        return
                continue
            while len(keys) < _AT_ONCE and not self._released.empty():
                keys.append(self._released.get())
            self._delete(keys)

    def _delete(self, keys: Sequence[tuple[str, str]]) -> None:
        rows = ", ".join(f"(:name{n}, :holder{n})" for n in range(len(keys)))
        values = {"process": self._process}
        for n, (name, holder) in enumerate(keys):
            values |= {f"name{n}": name, f"holder{n}": holder}
        query = f"DELETE FROM leases WHERE process = :process AND (name, holder) IN (VALUES {rows})"
        with suppress(DatabaseFailed):  # then they expire
            self._database.run(query, **values)

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
            self._by_key.clear()
            self._replaced.clear()
        with suppress(DatabaseFailed):
            self._database.run("DELETE FROM leases WHERE process = :process", process=self._process)

    def _take(self, name: str, most: int) -> Lease | None:
        sent = time.monotonic()
        for (number,) in self._execute(_TAKE, name=name, most=most):
            lease = Lease(self, name, number, sent)
            with self._lock:
                if replaced := self._by_key.get((name, number)):
                    self._replaced.add(replaced)
                self._by_key[name, number] = lease
                if self._thread is None:
                    self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
                    self._thread.start()
            return lease
        return None

    def _execute(self, query: str, **values: object) -> Sequence[Any]:
        own = {"process": self._process, "seconds": LEASE_SECONDS, "now": self._database.now()}
        text = query.format(clock=self._database.clock)
        return self._database.execute(text, own | values, writes=True).rows

    def _renew(self) -> None:
        """Renew what this process holds until that is nothing."""
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                leases = [*self._by_key.values(), *self._replaced]
                if not leases:
                    self._thread = None
                    return
            try:
                self._renew_all(leases)
            except DatabaseFailed as error:
                if self._by_key:  # else it has been closed meanwhile
                    log.warning("leases were not renewed", reason=str(error))
            except Exception:  # of a holder's on_lost: the others' leases depend on this thread
                log.exception("a lost lease was not handled")

    def _renew_all(self, leases: list[Lease]) -> None:
        """Raises `DatabaseFailed`, also from `Lease.on_lost`: the next round handles the other leases."""
        sent = time.monotonic()
        known = {(name, number) for name, number in self._execute(_RENEW)}
        for lease in leases:
            key = (lease.name, lease.number)
            is_current = self._by_key.get(key) is lease
            if is_current and key in known:
                lease.renewed = sent
            elif lease.is_held() and (is_current or lease in self._replaced):
                self._replaced.discard(lease)
                lease.renewed = -LEASE_SECONDS
                log.warning("a lease was lost", lease=lease.name)
                lease.on_lost()
