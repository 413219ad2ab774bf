"""What replicas know of each other's kernels: one document per container, and a
table of the slots that `max_kernels` allows where they share a gateway.

A record is data: it is validated as the types below when it is read. Knows nothing of the kernels of this
process.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
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


_KEY = "all"
_TABLE_SECONDS = 31 * 86_400.0
"""Longer than any slot. Each change extends it."""

_Table = dict[str, tuple[float, float]]
"""Container -> when its kernel was last used, and when its slot expires, in Unix time."""


class _NoSlot(Exception):
    pass


class KernelSlots:
    """A container has a slot while its kernel runs on any replica, but no longer than an unused container
    lives. So the slot of a replica that died becomes free after that time, or when any replica ends the
    container. Safe to share between threads. All methods raise `DatabaseFailed`.
    """

    def __init__(
        self, database: Database, limit: int, now: Callable[[], float] = time.time
    ) -> None:
        self.limit = limit
        self._tables: Documents[_Table] = Documents(
            database, "kernel-slots", _Table, seconds=_TABLE_SECONDS
        )
        self._now = now

    def acquire(self, container_id: str, seconds: float) -> bool:
        """Return True if the container now has a slot, which expires after ``seconds`` unless renewed."""

        def take(table: _Table) -> None:
            if container_id not in table and len(table) >= self.limit:
                raise _NoSlot
            self._use(table, container_id, seconds)

        try:
            self._change(take)
        except _NoSlot:
            return False
        return True

    def renew(self, container_id: str, seconds: float) -> None:
        """The container's kernel was used now. It has a slot even if others have taken all of them."""
        self._change(lambda table: self._use(table, container_id, seconds))

    def release(self, container_id: str) -> None:
        def remove(table: _Table) -> None:
            table.pop(container_id, None)

        self._change(remove)

    def idle(self, seconds: float) -> list[str]:
        """Containers whose kernels have not been used for ``seconds``, the longest idle first."""
        since = self._now() - seconds
        table = self._current(self._tables.get(_KEY))
        by_use = sorted((used, container_id) for container_id, (used, _) in table.items())
        return [container_id for used, container_id in by_use if used <= since]

    def _use(self, table: _Table, container_id: str, seconds: float) -> None:
        table[container_id] = (self._now(), self._now() + seconds)

    def _change(self, change: Callable[[_Table], None]) -> None:
        def changed(stored: _Table | None) -> _Table:
            table = self._current(stored)
            change(table)
            return table

        self._tables.change(_KEY, changed)

    def _current(self, table: _Table | None) -> _Table:
        """The slots that have not expired."""
        return {each: times for each, times in (table or {}).items() if times[1] > self._now()}
