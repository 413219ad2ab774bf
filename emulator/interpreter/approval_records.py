"""What waits for approval at any process: one document per owner.

An entry expires `RECORD_SECONDS` after its process last renewed it, so a process that dies takes its own with
it. Knows nothing of kernels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from emulator.database import MAX_VALUE_BYTES, Database, Documents
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval

RECORD_SECONDS = 10.0
"""Longer than a replica stops using a database that has failed."""
_TAKEN_SECONDS = 3.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class _Entry:
    id: str
    code: str
    since: float
    renewed: float
    decision: ApprovalDecision | None = None


_Entries = tuple[_Entry, ...]


class _NotPending(Exception):
    pass


class ApprovalRecords:
    """Safe to share between threads. All methods raise `DatabaseFailed`."""

    def __init__(self, database: Database) -> None:
        self._records: Documents[_Entries] = Documents(
            database, "approval", _Entries, seconds=RECORD_SECONDS, max_bytes=64 * 2**20
        )

    def renew(self, pending: PendingApproval) -> ApprovalDecision | None:
        """Record that ``pending`` still waits. Returns the decision, if another process made one."""
        now = time.time()
        new = _Entry(pending.id, pending.code, pending.since, now)
        decision: ApprovalDecision | None = None

        def change(entries: _Entries | None) -> _Entries:
            nonlocal decision
            current = _current(entries)
            known = next((entry for entry in current if entry.id == pending.id), new)
            decision = known.decision
            others = tuple(entry for entry in current if entry.id != pending.id)
            changed = (*others, replace(known, renewed=now))
            # Only its own process can show that much code.
            return changed if len(self._records.dump(changed)) <= MAX_VALUE_BYTES else others

        self._records.change(pending.owner, change)
        return decision

    def get(self, owner: str) -> list[PendingApproval]:
        """What is undecided, to be shown."""
        return [
            PendingApproval(entry.id, owner, entry.code, entry.since)
            for entry in _current(self._records.get(owner))
            if entry.decision is None
        ]

    def decide(self, owner: str, key: str, decision: ApprovalDecision) -> bool:
        """Return True if this decision counts: ``key`` is pending, and no other decision came first."""

        def settle(entries: _Entries | None) -> _Entries:
            current = _current(entries)
            if not any(entry.id == key and entry.decision is None for entry in current):
                raise _NotPending
            return tuple(
                replace(entry, decision=decision) if entry.id == key else entry for entry in current
            )

        try:
            self._records.change(owner, settle)
        except _NotPending:
            return False
        return True

    def was_taken(self, owner: str, key: str) -> bool:
        """Wait until the entry's process has taken the decision and removed the entry.

        Returns False, and withdraws the decision, if it does not: then it has died.
        """
        until = time.monotonic() + _TAKEN_SECONDS
        while any(entry.id == key for entry in self._records.get(owner) or ()):
            if time.monotonic() > until:
                return not self._withdraw(owner, key)
            time.sleep(_LOOK_SECONDS)
        return True

    def _withdraw(self, owner: str, key: str) -> bool:
        """Returns False if the entry is gone."""
        is_there = False

        def change(entries: _Entries | None) -> _Entries:
            nonlocal is_there
            is_there = any(entry.id == key for entry in entries or ())
            return tuple(
                replace(entry, decision=None) if entry.id == key else entry
                for entry in entries or ()
            )

        self._records.change(owner, change)
        return is_there

    def delete(self, owner: str, key: str) -> None:
        def change(entries: _Entries | None) -> _Entries:
            return tuple(entry for entry in _current(entries) if entry.id != key)

        self._records.change(owner, change)


def _current(entries: _Entries | None) -> _Entries:
    oldest = time.time() - RECORD_SECONDS
    return tuple(entry for entry in entries or () if entry.renewed > oldest)
