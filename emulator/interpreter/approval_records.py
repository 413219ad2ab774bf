"""Cells that wait for approval at any replica: one record per container in the shared store.

A container has one cell at a time. A record expires `RECORD_SECONDS` after its replica last renewed it, so
a replica that dies takes its pending cell with it. All of it is data, validated when it is read. Knows
nothing of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from emulator.interpreter.pending_cell import ApprovalDecision, PendingCell
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore

log = structlog.get_logger()

RECORD_SECONDS = 10.0
"""Longer than a replica stops using a Redis that has failed."""


@dataclass(frozen=True)
class _Record:
    id: str
    code: str
    since: float
    decision: ApprovalDecision | None = None


_ONE: Any = tuple  # mypy wants the type of its items
_RECORD: TypeAdapter[tuple[_Record]] = TypeAdapter(_ONE[_Record])


class _NotPending(Exception):
    pass


class ApprovalRecords:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def renew(self, cell: PendingCell) -> ApprovalDecision | None:
        """Record that the cell is still pending. Returns the decision, if another replica made one."""
        new = _dump(_Record(cell.id, cell.code, cell.since))
        if len(new) > MAX_VALUE_BYTES:
            return None  # only its own replica can show that much code
        decision: ApprovalDecision | None = None

        def change(value: bytes | None) -> bytes:
            nonlocal decision
            record = _parse(value)
            if value is None or record is None or record.id != cell.id:
                decision = None
                return new
            decision = record.decision
            return value

        self._store.change(_key(cell.container_id), change, RECORD_SECONDS)
        return decision

    def get(self, container_id: str) -> PendingCell | None:
        """The undecided cell of the container, to be shown."""
        record = _parse(self._store.get(_key(container_id)))
        if record is None or record.decision is not None:
            return None
        return PendingCell(record.id, container_id, record.code, record.since)

    def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
        """Return True if this decision counts: the cell is pending, and no other decision came first."""

        def settle(value: bytes | None) -> bytes:
            record = _parse(value)
            if record is None or record.id != execution_id or record.decision is not None:
                raise _NotPending
            return _dump(replace(record, decision=decision))

        try:
            self._store.change(_key(container_id), settle, RECORD_SECONDS)
        except _NotPending:
            return False
        return True

    def delete(self, container_id: str) -> None:
        """Must be called while this replica has the container."""
        self._store.delete([_key(container_id)])


def _key(container_id: str) -> str:
    return f"held:{container_id}"


def _dump(record: _Record) -> bytes:
    return _RECORD.dump_json((record,))


def _parse(value: bytes | None) -> _Record | None:
    if value is None:
        return None
    try:
        (record,) = _RECORD.validate_json(value)
    except ValidationError as error:
        log.warning("the record of a pending cell is invalid", problems=error.error_count())
        return None
    return record
