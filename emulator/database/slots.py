"""Slots: a limited number of holders of a name, which outlive the process that took them.

    free ── acquire ──► held ── release, or not renewed in time ──► free

Unlike a lease, a slot is renewed only when its holder is used, and any process may release it. The slot of a
holder that nobody can find any more becomes free when it expires.
"""

from __future__ import annotations

from emulator.database.database import Database

TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS slots (name TEXT NOT NULL, holder TEXT NOT NULL, "
        "used DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, holder))"
    ),
)
_USE = (
    "INSERT INTO slots (name, holder, used, expires) VALUES (:name, :holder, :now, :until) "
    "ON CONFLICT (name, holder) DO UPDATE SET used = excluded.used, expires = excluded.expires"
)
_COUNT_OTHERS = "SELECT count(*) FROM slots WHERE name = :name AND holder <> :holder"
_IDLE = (
    "SELECT holder FROM slots WHERE name = :name AND expires > :now AND used <= :since "
    "ORDER BY used, holder"
)


class Slots:
    """Safe to share between threads. All methods raise `DatabaseFailed`."""

    def __init__(self, database: Database, name: str, limit: int) -> None:
        self.limit = limit
        self._database = database
        self._name = name

    def acquire(self, holder: str, seconds: float) -> bool:
        """Return True if ``holder`` now has a slot, which expires after ``seconds`` unless renewed."""
        key, now = {"name": self._name, "holder": holder}, self._database.now()
        with self._database.transaction(f"slots {self._name}") as rows:
            rows.run("DELETE FROM slots WHERE expires <= :now", now=now)
            (others,) = rows.one(_COUNT_OTHERS, **key)
            if others >= self.limit:
                return False
            rows.run(_USE, **key, now=now, until=now + seconds)
        return True

    def renew(self, holder: str, seconds: float) -> None:
        """``holder`` was used now. It has a slot even if others have taken all of them."""
        now = self._database.now()
        self._database.run(_USE, name=self._name, holder=holder, now=now, until=now + seconds)

    def release(self, holder: str) -> None:
        query = "DELETE FROM slots WHERE name = :name AND holder = :holder"
        self._database.run(query, name=self._name, holder=holder)

    def idle(self, seconds: float) -> list[str]:
        """Holders that were not used for ``seconds``, the longest idle first."""
        now = self._database.now()
        found = self._database.all(_IDLE, name=self._name, now=now, since=now - seconds)
        return [holder for (holder,) in found]
