"""Cells that wait for approval at any replica: one record per container in the shared store.

A container has one cell at a time. A record expires `RECORD_SECONDS` after its replica last renewed it, so a
replica that dies takes its pending cell with it. Knows nothing of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulator.interpreter.pending_cell import ApprovalDecision, PendingCell
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore
from emulator.storage.key_value.records import Records

RECORD_SECONDS = 10.0
"""Longer than a replica stops using a Redis that has failed."""


@dataclass(frozen=True)
class _Record:
    id: str
    code: str
    since: float
    decision: ApprovalDecision | None = None


class _NotPending(Exception):
    pass


class ApprovalRecords:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._records: Records[_Record] = Records(store, "held", _Record, RECORD_SECONDS)

    def renew(self, cell: PendingCell) -> ApprovalDecision | None:
        """Record that the cell is still pending. Returns the decision, if another replica made one."""
        new = _Record(cell.id, cell.code, cell.since)
        if len(self._records.dump(new)) > MAX_VALUE_BYTES:
            return None  # only its own replica can show that much code
        decision: ApprovalDecision | None = None

        def change(record: _Record | None) -> _Record:
            nonlocal decision
            known = record if record is not None and record.id == cell.id else new
            decision = known.decision
            return known

        self._records.change(cell.container_id, change)
        return decision

    def get(self, container_id: str) -> PendingCell | None:
        """The undecided cell of the container, to be shown."""
        record = self._records.get(container_id)
        if record is None or record.decision is not None:
            return None
        return PendingCell(record.id, container_id, record.code, record.since)

    def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
        """Return True if this decision counts: the cell is pending, and no other decision came first."""

        def settle(record: _Record | None) -> _Record:
            if record is None or record.id != execution_id or record.decision is not None:
                raise _NotPending
            return replace(record, decision=decision)

        try:
            self._records.change(container_id, settle)
        except _NotPending:
            return False
        return True

    def delete(self, container_id: str) -> None:
        """Must be called while this replica has the container."""
        self._records.delete(container_id)
