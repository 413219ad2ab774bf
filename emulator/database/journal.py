"""The journal: an act is a row before it is an act, so that no retry makes it a second time.

Its table also has what waits for a person's decision (`acts`).

    (no row) ── begin ──► running ── finish ──► done
       ▲  ▲                  │ └ its process has died: unknown, until a late `finish` makes it done, perhaps
       │  │                  │   of another process that asks for the row's task (`note_task`)
       │  └──── withdraw ────┘ it failed before it was sent, or its server has cancelled it
       └ a result without a row before: what a reader found, which may be read again

    asked ── begin ──► running     a person is asked about the act, perhaps in an earlier answer

`begin` answers *mine* to exactly one caller for each key, whatever the process. That caller makes the act and
must call `finish` or `withdraw`; every other caller finds what became of it. A running row belongs to the
process that began it as long as that process renews its lease (`leases`).

What may never happen: two callers begin the same key; an act whose row could not be written is made; a key
whose outcome is unknown begins again. Therefore `begin` is one insert, and no row of a dead process is taken
over: its outcome stays unknown.

Each statement may run twice with the same result, because a lost connection leaves unknown whether it ran.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from emulator.database.database import Database
from emulator.database.leases import Lease, Leases
from emulator.database.tidying import Removal, Tidying

MAX_RESULTS_BYTES = 256 * 2**20
"""Of all results. Above it the results of the oldest acts are dropped, but not their rows."""
TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS journal (id TEXT PRIMARY KEY, state TEXT NOT NULL, value BYTEA, "
        "changed DOUBLE PRECISION NOT NULL, holder TEXT NOT NULL DEFAULT '', "
        "owner TEXT NOT NULL DEFAULT '', code TEXT NOT NULL DEFAULT '', "
        "since DOUBLE PRECISION NOT NULL DEFAULT 0)"
    ),
    "CREATE INDEX IF NOT EXISTS journal_changed ON journal (state, changed)",
    "CREATE INDEX IF NOT EXISTS journal_owner ON journal (owner, state)",
)
_ASK = "INSERT INTO journal (id, state, changed) VALUES (:id, 'asked', :now) ON CONFLICT (id) DO NOTHING"
_BEGIN = (
    "INSERT INTO journal (id, state, holder, changed) VALUES (:id, 'running', :holder, :now) "
    "ON CONFLICT (id) DO UPDATE SET state = 'running', holder = :holder, changed = :now "
    "WHERE journal.state = 'asked' OR journal.holder = :holder RETURNING holder"
)
_FIND = "SELECT state, value FROM journal WHERE id = :id"
_IS_HELD = "SELECT 1 FROM leases WHERE name = :name AND until >= :now"
_NOTE_TASK = (
    "UPDATE journal SET value = :task WHERE id = :id AND state = 'running' AND holder = :holder"
)
_FINISH = (
    "INSERT INTO journal (id, state, value, changed) VALUES (:id, 'done', :result, :now) "
    "ON CONFLICT (id) DO UPDATE SET state = 'done', holder = '', value = :result, changed = :now "
    "WHERE journal.state <> 'done'"
)
_WITHDRAW = "DELETE FROM journal WHERE id = :id AND holder = :holder"
_OLD = "SELECT id FROM journal WHERE state IN ('asked', 'running', 'done') AND changed < :now - :seconds"
_REMOVE = (
    "DELETE FROM journal WHERE state IN ('asked', 'running', 'done') AND changed < :now - :seconds "
    "AND id IN ({keys})"
)
_LARGE = (
    "SELECT id FROM (SELECT id, sum(length(value)) OVER (ORDER BY changed DESC, id) AS total "
    "FROM journal WHERE state = 'done' AND value IS NOT NULL) AS sizes WHERE total > :most"
)
_DROP = (
    "UPDATE journal SET value = NULL WHERE state = 'done' AND changed <= :now AND id IN ({keys})"
)

ActState = Literal["asked", "mine", "running", "done", "unknown"]


@dataclass(frozen=True)
class JournalEntry:
    state: ActState
    result: bytes | None = None
    """Of an act that is done; None if it is no longer stored."""
    task: str = ""
    """The task as which a server makes an act that is not done."""


class Journal:
    """Safe to share between threads. All methods raise `DatabaseFailed`."""

    def __init__(self, database: Database, leases: Leases, seconds: float) -> None:
        """A row is removed ``seconds`` after it has changed: then nothing may ask for its act again."""
        self._database = database
        self._leases = leases
        self._running: dict[str, tuple[Lease, str]] = {}
        """Of each act that this process makes, by key: its lease, and the holder in its row."""
        self._tidying = Tidying(
            database,
            "journal",
            Removal(_OLD, _REMOVE, {"seconds": seconds}),
            Removal(_LARGE, _DROP, {"most": MAX_RESULTS_BYTES}),
            due_bytes=MAX_RESULTS_BYTES // 16,
        )

    def ask(self, key: str) -> None:
        """A person is asked about an act, which `begin` may then begin."""
        self._database.run(_ASK, id=key, now=self._database.now())

    def begin(self, key: str) -> JournalEntry:
        """*Mine*: the caller makes the act now. Otherwise what became of it."""
        if (found := self.find(key)) is not None and found.state != "asked":
            return found
        lease = self._leases.take(_lease(key))
        if lease is None:
            return JournalEntry("running")
        holder = secrets.token_hex(8)
        values = {"id": key, "holder": holder, "now": self._database.now()}
        is_mine = False
        try:
            is_mine = bool(self._database.execute(_BEGIN, values, writes=True).rows)
        finally:
            if not is_mine:
                lease.release()
        if is_mine:
            self._running[key] = lease, holder
            return JournalEntry("mine")
        return self.find(key) or JournalEntry("running")

    def find(self, key: str) -> JournalEntry | None:
        """What is known of an act, which does not begin."""
        row = self._database.one(_FIND, id=key)
        if row is None:
            return None
        state, result = row
        if state == "running":
            with self._database.transaction() as rows:  # by the clock that leases have
                if rows.one(_IS_HELD, name=_lease(key), now=rows.now) is None:
                    # `finish` writes the row before it releases the lease.
                    state, result = rows.one(_FIND, id=key) or ("running", None)
                    state = "unknown" if state == "running" else state
        stored = None if result is None else bytes(result)
        if state == "done":
            return JournalEntry(state, stored)
        return JournalEntry(state, task=(stored or b"").decode())

    def note_task(self, key: str, task: str) -> bool:
        """A server makes an act that was begun as ``task``, of which any process may ask for the result.
        Returns False if there is no such row any longer."""
        act = self._running.get(key)
        values = {"id": key, "task": task.encode()}
        return act is not None and self._database.run(_NOTE_TASK, **values, holder=act[1]) == 1

    def finish(self, key: str, result: bytes) -> None:
        """Store the result of an act: of one that was begun, or of a reader. The first result stays."""
        self._database.run(_FINISH, id=key, result=result, now=self._database.now())
        self.abandon(key)
        self._tidying.count(len(result))

    def withdraw(self, key: str) -> None:
        """An act that was begun was not made: another request may make it."""
        if (act := self._running.get(key)) is not None:
            self._database.run(_WITHDRAW, id=key, holder=act[1])
            self.abandon(key)

    def abandon(self, key: str) -> None:
        """This process cannot finish the act: from now on its outcome is unknown."""
        if (act := self._running.pop(key, None)) is not None:
            act[0].release()


def _lease(key: str) -> str:
    return f"act {key}"
