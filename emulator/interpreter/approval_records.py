"""What waits for approval at any process: one record per owner in the shared store.

An entry expires `RECORD_SECONDS` after its process last renewed it, so a process that dies takes its own with
it. Knows nothing of kernels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore
from emulator.storage.key_value.records import Records

RECORD_SECONDS = 10.0
"""Longer than a replica stops using a Redis that has failed."""


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
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._records: Records[_Entries] = Records(store, "approvals", _Entries, RECORD_SECONDS)

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

    def delete(self, owner: str, key: str) -> None:
        def change(entries: _Entries | None) -> _Entries:
            return tuple(entry for entry in _current(entries) if entry.id != key)

        self._records.change(owner, change)


def _current(entries: _Entries | None) -> _Entries:
    oldest = time.time() - RECORD_SECONDS
    return tuple(entry for entry in entries or () if entry.renewed > oldest)
