"""Acts that wait for a decision: each is a row before anything is done.

    pending ──► decided ──► taken ──► removed
       ▲ └─────────┼──────────┘ the act's process decides itself, and takes its own decision
       └───────────┘ withdrawn by the process that decided, because nobody has taken the decision

The process that acts owns the row: it renews the row, takes the decision, and then does what was decided.
Every process lists and decides what is pending. A row that was not renewed for `ACT_SECONDS` belongs to a
dead process: it can no longer be listed or decided, and any process removes it later.

What may never happen: two decisions count; a decision changes after it was taken; an act is done before its
decision is taken; a process reports that its decision counts before it is taken, or that it does not count
although it was taken. Therefore taking is one statement, a decision is withdrawn only while it is not taken,
and the row of a taken decision is removed only when no process can wait for it any longer.

The rows are those of the journal (`journal`). Every statement names the owner. Each may run twice with the
same result, because a lost connection leaves unknown whether it ran: so each decision has bytes of its own.
"""

from __future__ import annotations

from typing import Any

from emulator.database.database import Database

ACT_SECONDS = 10.0
"""Longer than a process stops using a database that has failed."""
_REMOVED_SECONDS = 60.0
"""Much longer than a process waits until its decision is taken."""
_DECISIONS = "state IN ('pending', 'decided', 'taken')"
_THIS = f"id = :id AND owner = :owner AND {_DECISIONS}"
_TAKE = (
    "UPDATE journal SET changed = :now, value = coalesce(value, :own), "
    "state = CASE WHEN coalesce(value, :own) IS NULL THEN 'pending' ELSE 'taken' END "
    f"WHERE {_THIS} RETURNING value"
)
_ADD = (
    "INSERT INTO journal (id, owner, code, since, changed, value, state) "
    "VALUES (:id, :owner, :code, :since, :now, :own, :state) ON CONFLICT (id) DO NOTHING"
)
_PENDING = (
    "SELECT id, code, since FROM journal "
    "WHERE owner = :owner AND state = 'pending' AND changed > :old"
)
_DECIDE = (
    "UPDATE journal SET value = :decision, "
    "state = CASE WHEN state = 'taken' THEN 'taken' ELSE 'decided' END "
    f"WHERE {_THIS} AND changed > :old AND (value IS NULL OR value = :decision) RETURNING code, since"
)
_WITHDRAW = (
    "UPDATE journal SET value = NULL, state = 'pending' "
    f"WHERE {_THIS} AND value = :decision AND state = 'decided'"
)
_IS_TAKEN = f"SELECT 1 FROM journal WHERE {_THIS} AND value = :decision AND state = 'taken'"
_REMOVE = f"DELETE FROM journal WHERE {_THIS} AND state <> 'taken'"
_SWEEP = f"DELETE FROM journal WHERE {_DECISIONS} AND changed < :old"


class Acts:
    """Safe to share between threads. All methods raise `DatabaseFailed`.

    ``owner`` is who may decide; a decision is any bytes that no other decision has.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self, owner: str, id_: str, code: str, since: float, own: bytes | None = None
    ) -> bytes | None:
        """Renew the act's row, or add it, and take the decision that was made, else ``own``.

        Called by the act's process, in one thread at a time. None if there is no decision yet.
        """
        key = {"id": id_, "owner": owner, "own": own, "now": self._database.now()}
        for (decision,) in self._database.execute(_TAKE, key, writes=True).rows:
            return None if decision is None else bytes(decision)
        state = "pending" if own is None else "taken"
        self._database.run(_ADD, **key, code=code, since=since, state=state)
        return own

    def pending(self, owner: str) -> list[tuple[str, str, float]]:
        """Id, code and begin of each."""
        return self._database.all(_PENDING, owner=owner, old=self._database.now() - ACT_SECONDS)

    def decide(self, owner: str, id_: str, decision: bytes) -> tuple[str, float] | None:
        """The code and begin of the act, which ``decision`` is for, unless it is withdrawn.

        None if no such act is pending.
        """
        old = self._database.now() - ACT_SECONDS
        key = {"id": id_, "owner": owner, "decision": decision, "old": old}
        rows: Any = self._database.execute(_DECIDE, key, writes=True).rows
        return next(iter(rows), None)

    def is_taken(self, owner: str, id_: str, decision: bytes) -> bool:
        """Return True if the act's process has taken this decision."""
        return self._database.one(_IS_TAKEN, id=id_, owner=owner, decision=decision) is not None

    def withdraw(self, owner: str, id_: str, decision: bytes) -> bool:
        """Return True unless the act's process has taken this decision, which then stays."""
        self._database.run(_WITHDRAW, id=id_, owner=owner, decision=decision)
        return not self.is_taken(owner, id_, decision)

    def remove(self, owner: str, id_: str) -> None:
        """Remove an act that its process does not wait for any more, unless its decision was taken."""
        self._database.run(_REMOVE, id=id_, owner=owner)

    def sweep(self) -> None:
        """Remove the rows of dead processes, and of acts that were decided long ago."""
        old = self._database.now() - ACT_SECONDS - _REMOVED_SECONDS
        self._database.run(_SWEEP, old=old)
