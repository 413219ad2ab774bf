"""Cells that wait for a person's word at one replica, as all of them know them: a record for each container.

A container has one cell at a time, so one record is enough; what decides writes into it, and the replica
whose cell it is looks. A replica that dies takes its cell along: the record ends soon after.
All of it is data, read back as the types below and nothing else. Knows nothing of kernels.
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
"""After which the cell of a replica that died waits no more; longer than one leaves Redis alone."""


@dataclass(frozen=True)
class HeldRecord:
    id: str
    code: str
    since: float
    decision: ApprovalDecision | None = None


_ONE: Any = tuple  # mypy wants to know of what
_RECORD: TypeAdapter[tuple[HeldRecord]] = TypeAdapter(_ONE[HeldRecord])


class _NothingWaits(Exception):
    pass


class SharedApprovals:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def look(self, held: PendingCell) -> ApprovalDecision | None:
        """Say that this cell still waits here; what was decided, if anything was."""
        found: list[ApprovalDecision] = []

        def renew(value: bytes | None) -> bytes:
            found.clear()
            record = _read(value)
            if value is None or record is None or record.id != held.id:
                return _written(HeldRecord(held.id, held.code, held.since))
            found.extend([record.decision] if record.decision else [])
            return value

        if len(_written(HeldRecord(held.id, held.code, held.since))) > MAX_VALUE_BYTES:
            return None  # only its own replica can show so much
        self._store.change(_key(held.container_id), renew, RECORD_SECONDS)
        return found[0] if found else None

    def of(self, container_id: str) -> PendingCell | None:
        """The cell that waits in the container and is not decided on, to be shown."""
        record = _read(self._store.get(_key(container_id)))
        if record is None or record.decision is not None:
            return None
        return PendingCell(record.id, container_id, record.code, record.since)

    def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
        """Whether this decision counts: the cell waits, and nobody was faster."""

        def settle(value: bytes | None) -> bytes:
            record = _read(value)
            if record is None or record.id != execution_id or record.decision is not None:
                raise _NothingWaits
            return _written(replace(record, decision=decision))

        try:
            self._store.change(_key(container_id), settle, RECORD_SECONDS)
        except _NothingWaits:
            return False
        return True

    def forget(self, held: PendingCell) -> None:
        """To be called while the container is still this replica's."""
        self._store.delete([_key(held.container_id)])


def _key(container_id: str) -> str:
    return f"held:{container_id}"


def _written(record: HeldRecord) -> bytes:
    return _RECORD.dump_json((record,))


def _read(value: bytes | None) -> HeldRecord | None:
    if value is None:
        return None
    try:
        (record,) = _RECORD.validate_json(value)
    except ValidationError as error:
        log.warning("the record of a held cell cannot be read", problems=error.error_count())
        return None
    return record
