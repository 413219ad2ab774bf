"""What replicas know of each other's kernels: one record per container in the store that they share.

A record is data: it is validated as the types below when it is read. Knows nothing of the kernels of this
process.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from emulator.interpreter.cell import RunningCell
from emulator.interpreter.file_sync import SyncedFiles
from emulator.settings import MemoryLimit
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore
from emulator.storage.key_value.records import Records
from sandbox.kernel.parked import ParkedSession

log = structlog.get_logger()


@dataclass(frozen=True)
class KernelRecord:
    memory_limit: MemoryLimit
    ran: bool
    """A cell has run in the container."""
    open: bool
    """There is a kernel. One that is not `parked` ends with its replica; no other replica can attach to
    it.
    """
    busy: bool
    """A cell is running, or was when its replica wrote this."""
    parked: ParkedSession | None = None
    files: SyncedFiles = field(default_factory=SyncedFiles)
    tools: list[dict[str, Any]] | None = None
    """The tools whose functions the kernel defines."""
    cell: RunningCell | None = None
    """The cell that waits for results of its calls."""
    stamp: str = field(default_factory=lambda: secrets.token_hex(8))
    """New with each record, so that a replica knows whether it wrote the last one."""

    def without_kernel(self) -> KernelRecord:
        """The record after the kernel has been ended."""
        return KernelRecord(self.memory_limit, self.ran, open=True, busy=False)


class KernelRecords:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._records: Records[KernelRecord] = Records(store, "kernel", KernelRecord)

    def get(self, container_id: str) -> KernelRecord | None:
        return self._records.get(container_id)

    def stamps(self, container_ids: Collection[str]) -> dict[str, str]:
        """Container -> stamp of its record, for those that have one."""
        records = self._records.get_many(container_ids)
        return {container_id: record.stamp for container_id, record in records.items()}

    def put(self, container_id: str, record: KernelRecord) -> None:
        """Store the record, and for each call of its waiting cell in which container the cell is."""
        value = self._records.dump(record)
        if len(value) > MAX_VALUE_BYTES and record.cell is not None:
            log.warning("a waiting cell is too large to be shared", container=container_id)
            value = self._records.dump(replace(record, cell=None))
        values = {self._records.key(container_id): value}
        if record.cell is not None and record.cell.waiting is not None:
            calls = record.cell.waiting.calls
            values |= {f"cell-call:{call_id}": container_id.encode() for call_id in calls}
        self._store.put(values)

    def container_of(self, call_id: str) -> str | None:
        """The container whose cell made this call and waits, or once waited, for its result."""
        value = self._store.get(f"cell-call:{call_id}")
        return None if value is None else value.decode(errors="replace")

    def delete(self, container_id: str) -> None:
        self._records.delete(container_id)
