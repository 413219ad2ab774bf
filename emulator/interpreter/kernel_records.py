"""What replicas know of each other's kernels: one document per container.

A record is data: it is validated as the types below when it is read. Knows nothing of the kernels of this
process.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from emulator.database import MAX_VALUE_BYTES, Database, Documents
from emulator.interpreter.cell import RunningCell
from emulator.interpreter.file_sync import SyncedFiles
from emulator.settings.settings import MemoryLimit
from sandbox.kernel.connection import ParkedSession

log = structlog.get_logger()


_RECORD_SECONDS = 31 * 86_400.0
"""Longer than any container lives without being used."""


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
    seal: str = ""
    """Shows that a process of this proxy wrote the address of the kernel (`SharedKernels`)."""
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
    """Safe to share between threads. All methods raise `DatabaseFailed`."""

    def __init__(self, database: Database) -> None:
        seconds = _RECORD_SECONDS
        self._records: Documents[KernelRecord] = Documents(
            database, "kernel", KernelRecord, seconds=seconds
        )
        self._calls: Documents[str] = Documents(
            database, "cell-call", str, seconds=seconds, max_bytes=16 * 2**20
        )

    def get(self, container_id: str) -> KernelRecord | None:
        return self._records.get(container_id)

    def stamps(self, container_ids: Collection[str]) -> dict[str, str]:
        """Container -> stamp of its record, for those that have one."""
        records = self._records.get_many(container_ids)
        return {container_id: record.stamp for container_id, record in records.items()}

    def put(self, container_id: str, record: KernelRecord) -> None:
        """Store the record, and for each call of its waiting cell in which container the cell is."""
        if record.cell is not None and len(self._records.dump(record)) > MAX_VALUE_BYTES:
            log.warning("a waiting cell is too large to be shared", container=container_id)
            record = replace(record, cell=None)
        self._records.put({container_id: record})
        if record.cell is not None and record.cell.waiting is not None:
            self._calls.put(dict.fromkeys(record.cell.waiting.calls, container_id))

    def container_of(self, call_id: str) -> str | None:
        """The container whose cell made this call and waits, or once waited, for its result."""
        return self._calls.get(call_id)

    def delete(self, container_id: str) -> None:
        self._records.delete([container_id])
