"""Kernels that several replicas use, one at a time: the one with the container's lease is attached to it.

    take the lease ──► attach, if another replica wrote the record ──► run ──► write the record ──► release

The record says where the kernel is and what its session had. A replica that finds a
record that it did not write drops its own connection and attaches again. A replica that dies frees its
lease, and the next one attaches to the kernel, with the cell that was running interrupted. But a kernel of
this machine (bubblewrap, Docker) ends with the process that started it: then, and on another machine, the
next cell's notes say that its session was restarted.

Never may two replicas use a kernel at the same time: a replica that is no longer sure of its lease neither
writes the record nor ends the kernel. Never may somebody else's row lead to a process of this machine: the
address of a local kernel has a seal, by a key that all processes have. Knows nothing of what runs in kernels.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator.database import Database, DatabaseFailed, Lease, Leases, LeaseTaken, Slots
from emulator.interpreter.cell import RunningCell
from emulator.interpreter.container_kernel import ContainerKernel
from emulator.interpreter.kernel_records import KernelRecord, KernelRecords
from emulator.settings.settings import Settings
from emulator.storage.container_rows import Container
from sandbox.errors import SandboxBusy, SandboxDied, SandboxError
from sandbox.kernel.connection import ParkedSession
from sandbox.kernel.places import PLACES

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

log = structlog.get_logger()


class SharedKernels:
    """Safe to share between threads."""

    def __init__(
        self,
        database: Database,
        leases: Leases,
        engine: Callable[[str], KernelEngine],
        settings: Settings,
    ) -> None:
        self._leases = leases
        self._records = KernelRecords(database)
        self._slots: Slots | None = None  # each machine has kernels for its own memory
        self.ends_with_process = not PLACES[settings.sandbox].shared
        """A kernel ends with the process that started it."""
        key = settings.program_key.get_secret_value() or secrets.token_hex(16)
        self._key = f"kernel {key}".encode()
        if not self.ends_with_process:
            self._slots = Slots(database, "kernels", settings.max_kernels)
        self._engine = engine
        self._settings = settings

    def lease(self, container_id: str, seconds: float) -> AbstractContextManager[Lease]:
        """The container for this replica alone. Raises `LeaseTaken` after ``seconds``, `DatabaseFailed`."""
        return self._leases.holding(f"kernel {container_id}", seconds)

    def changed_record(self, container_id: str, kernel: ContainerKernel) -> KernelRecord | None:
        """The container's record, if ``kernel`` does not match it. Raises `DatabaseFailed`."""
        record = self._get(container_id)
        alive = kernel.notebook is None or not kernel.notebook.ended
        if record is None or (record.stamp == kernel.stamp and alive):
            return None
        if record.stamp == kernel.stamp and record.parked is None:
            return None  # the kernel was in this process and has ended
        return record

    def save(self, container: Container, kernel: ContainerKernel, *, runs: bool = False) -> None:
        """Write the container's record; ``runs``: a cell begins. Raises `DatabaseFailed`."""
        if not kernel.is_leased():
            return
        notebook = kernel.notebook
        if notebook is not None and notebook.ended:
            notebook = None
        if notebook is None and not (kernel.has_run or kernel.lost):
            return
        parked = None if notebook is None else notebook.park()
        if runs and parked is not None:
            parked = replace(parked, running=None)  # its call has been answered
        tools = kernel.offered
        record = KernelRecord(
            memory_limit=container.memory_limit,
            ran=kernel.has_run,
            open=notebook is not None or kernel.was_lost,
            busy=runs,
            parked=parked,
            seal="" if parked is None else self._seal(parked),
            files=kernel.file_sync.state(),
            tools=None if tools is None else [dict(tool) for tool in tools.definitions],
            cell=kernel.waiting,
        )
        kernel.stamp = ""  # if the write fails, it is unknown whether it happened
        self._records.put(container.id, record)
        kernel.stamp = record.stamp

    def save_at_end(self, container: Container, kernel: ContainerKernel) -> None:
        """Write the record and renew or release the slot, before the lease ends."""
        try:
            self.save(container, kernel)
            if self._slots is not None and kernel.is_leased():
                if kernel.notebook is None or kernel.notebook.ended:
                    self._slots.release(container.id)
                else:
                    self._slots.renew(container.id, self._slot_seconds(container))
        except DatabaseFailed as error:
            log.warning("other replicas do not know the state of a kernel", reason=str(error))

    def acquire_slot(self, container: Container) -> None:
        """One of the `max_kernels` of all replicas. Raises `SandboxBusy`, `DatabaseFailed`.

        If all are taken, the kernel that has been idle for longest is ended, wherever it was used.
        """
        if self._slots is None:
            return
        while not self._slots.acquire(container.id, self._slot_seconds(container)):
            if not self._make_room(self._slots):
                raise SandboxBusy(
                    f"all {self._slots.limit} kernels of all replicas are in use",
                    "try again in a moment",
                )

    def detach(self, kernel: ContainerKernel) -> bool:
        """Leave the kernel to other replicas. Returns False if it would end with this process."""
        if self.ends_with_process or kernel.notebook is None or kernel.notebook.park() is None:
            return False
        kernel.detach()
        kernel.stamp = ""
        return True

    def moved(
        self, kernels: Sequence[tuple[str, ContainerKernel]]
    ) -> list[tuple[str, ContainerKernel]]:
        """The kernels that other replicas have attached to, or whose containers are gone."""
        unused = {
            container_id: kernel
            for container_id, kernel in kernels
            if kernel.notebook is not None and not kernel.lock.locked()
        }
        try:
            stamps = self._records.stamps(unused)
        except DatabaseFailed:
            return []
        return [each for each in unused.items() if stamps.get(each[0]) != each[1].stamp]

    def waiting_cell(
        self, call_id: str, here: Mapping[str, ContainerKernel]
    ) -> tuple[str, RunningCell] | None:
        """The container and its cell that waits for this call's result, if it can be resumed here."""
        try:
            container_id = self._records.container_of(call_id) if call_id else None
            record = self._get(container_id) if container_id else None
        except DatabaseFailed:
            return None  # the caller asks the model instead
        if not container_id or record is None or record.cell is None:
            return None
        kernel = here.get(container_id)
        is_here = kernel is not None and kernel.stamp == record.stamp
        waiting = record.cell.waiting
        if waiting is None or call_id not in waiting.calls or not (record.parked or is_here):
            return None
        return container_id, record.cell

    def has_run(self, container_id: str) -> bool:
        try:
            record = self._records.get(container_id)
        except DatabaseFailed:
            return True  # an unused container that stays does less harm than a used one that goes
        return record is not None and record.ran

    def end(self, container_id: str) -> None:
        """End the kernel of a removed container, on whichever replica it was used last."""
        try:
            record = self._get(container_id)
            self._records.delete(container_id)
            if self._slots is not None:
                self._slots.release(container_id)
            if record is not None and record.parked is not None:
                self._engine(record.memory_limit).end(record.parked)
        except SandboxDied:
            pass
        except (DatabaseFailed, SandboxError) as error:
            log.warning("the kernel of a deleted container was not ended", reason=str(error))

    def is_current(self, container_id: str, parked: ParkedSession) -> bool:
        """Return False if the container has another kernel now, or none."""
        try:
            record = self._records.get(container_id)
        except DatabaseFailed:
            return True
        current = None if record is None else record.parked
        return current is not None and all(
            current.address.get(name) == parked.address[name]
            for name in ("machine", "pid", "started")
        )

    def _get(self, container_id: str) -> KernelRecord | None:
        """The record, without a kernel that no process of this proxy has written. Raises `DatabaseFailed`."""
        record = self._records.get(container_id)
        if record is None or record.parked is None:
            return record
        if not self.ends_with_process or hmac.compare_digest(
            record.seal, self._seal(record.parked)
        ):
            return record
        log.info("the kernel of a container is another proxy's", container=container_id)
        return replace(record, parked=None)

    def _seal(self, parked: ParkedSession) -> str:
        address = json.dumps(dict(parked.address), sort_keys=True)
        return hmac.new(self._key, address.encode(), "sha256").hexdigest()

    def _make_room(self, slots: Slots) -> bool:
        """End the kernel that has been idle for longest. Returns False if none has been for long enough.

        Raises `DatabaseFailed`.
        """
        enough = self._settings.interpreter_idle_seconds
        for container_id in slots.idle(enough):
            # Only with its lease can no replica use it; it may have been used since it was listed.
            is_idle = partial(lambda key: key in slots.idle(enough), container_id)
            if self.end_idle(container_id, is_idle):
                slots.release(container_id)
                return True
        return False

    def end_idle(self, container_id: str, is_idle: Callable[[], bool] = lambda: True) -> bool:
        """End a container's kernel. Returns False if a process uses it or a cell waits in it."""
        try:
            with self.lease(container_id, 0.0):
                return is_idle() and self._end_idle(container_id)
        except LeaseTaken:
            return False
        except (SandboxError, DatabaseFailed) as error:
            log.warning("an idle kernel was not ended", reason=str(error))
            return False

    def _end_idle(self, container_id: str) -> bool:
        """End a container's kernel, wherever it was used last. Returns False if a cell waits in it."""
        record = self._get(container_id)
        if record is None:
            return True
        if record.cell is not None:
            return False
        if record.parked is not None:
            with suppress(SandboxDied):
                self._engine(record.memory_limit).end(record.parked)
        self._records.put(container_id, record.without_kernel())
        return True

    def _slot_seconds(self, container: Container) -> float:
        """Longer than the container can live after its kernel was last used."""
        cell_seconds = self._settings.approval_seconds + self._settings.interpreter_seconds
        return 60.0 * container.expires_minutes + cell_seconds + 60.0
