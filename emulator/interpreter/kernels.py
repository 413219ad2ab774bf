"""The kernels of containers: at most one each, used by one request at a time.

`ContainerKernel` says in which states a kernel can be, `SharedKernels` how several replicas use the same
kernels, one at a time. Knows nothing of what runs in a kernel.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator.core.client_disconnect import acquire_for_client
from emulator.core.errors import ExecutionDelayed, ExecutionFailed
from emulator.database import DatabaseFailed, LeaseTaken
from emulator.interpreter.cell import RunningCell
from emulator.interpreter.container_kernel import ContainerKernel
from emulator.interpreter.file_sync import FileSync
from emulator.interpreter.kernel_records import KernelRecord
from emulator.interpreter.shared_kernels import SharedKernels
from emulator.settings.settings import Settings
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxBusy, SandboxDied, SandboxError
from sandbox.kernel.connection import ParkedSession
from sandbox.kernel.notebook import Notebook

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

log = structlog.get_logger()


class Kernels:
    """Safe to share between threads."""

    def __init__(
        self,
        containers: Containers,
        engine: Callable[[str], KernelEngine],
        shared: SharedKernels,
        settings: Settings,
    ) -> None:
        """``engine`` returns the engine for a memory limit (``1g`` ...), or raises `SandboxUnavailable`."""
        self._containers = containers
        self._engine = engine
        self._settings = settings
        self._shared = shared
        self._lock = threading.Lock()
        self._kernels: dict[str, ContainerKernel] = {}
        self._used_elsewhere: dict[str, tuple[str, ParkedSession]] = {}
        """Container -> its memory limit and its kernel, which this process started and others use."""

    @contextmanager
    def using(self, container: Container) -> Iterator[ContainerKernel]:
        """The container, for this request alone, with its kernel as the last replica left it.

        Raises `ExecutionFailed`, also for what a sandbox raises in the block.
        """
        new_file_sync = partial(
            FileSync, self._containers, container.id, self._settings.container_bytes
        )
        with self._lock:
            kernel = self._kernels.setdefault(container.id, ContainerKernel(new_file_sync))
        if not acquire_for_client(kernel.lock, self._settings.interpreter_seconds):
            raise _container_busy(container.id)
        try:
            self._containers.touch(container.id)
            with self._leased(container, kernel):
                yield kernel
        except LeaseTaken as error:
            raise _container_busy(container.id) from error
        except DatabaseFailed as error:
            raise ExecutionDelayed(
                "The code could not be run: the database is unavailable."
            ) from error
        except SandboxBusy as error:
            raise ExecutionDelayed(f"The code could not be run now: {error}") from error
        except SandboxError as error:
            kernel.end()
            raise ExecutionFailed(f"The code could not be run: {error}") from error
        finally:
            kernel.last_used = time.monotonic()
            kernel.lock.release()

    @contextmanager
    def _leased(self, container: Container, kernel: ContainerKernel) -> Iterator[None]:
        """Raises `LeaseTaken`, `DatabaseFailed`."""
        with self._shared.lease(container.id, self._settings.interpreter_seconds) as lease:
            kernel.is_leased = lease.is_held
            if (record := self._shared.changed_record(container.id, kernel)) is not None:
                self._attach(container, kernel, record)
            try:
                yield
            except SandboxError:
                kernel.end()
                raise
            finally:
                self._shared.save_at_end(container, kernel)
                kernel.is_leased = lambda: True

    def _attach(self, container: Container, kernel: ContainerKernel, record: KernelRecord) -> None:
        """Continue with the kernel that another replica used last."""
        self._disconnect(container.id, kernel)
        kernel.has_run, kernel.lost = record.ran, False
        if record.parked is None:
            kernel.lost = record.open
            return
        try:
            self.open(container, kernel, record)
        except SandboxDied as error:
            log.warning("the kernel of a container has ended", reason=str(error))
            kernel.lost = True
            return
        kernel.session_recorded = record.ran
        kernel.file_sync.resume(record.files)
        kernel.offered = None if record.tools is None else Toolset.parse(record.tools)
        kernel.waiting = record.cell

    def open(
        self, container: Container, kernel: ContainerKernel, record: KernelRecord | None = None
    ) -> Notebook:
        """Open the container's kernel, which may end the one that has been idle for longest.

        With ``record``, attach to the kernel that it names.
        """
        engine = self._engine(container.memory_limit)
        while kernel.notebook is None:
            try:
                self._take_share(container, kernel, attach=record is not None)
                if record is None:
                    self._shared.acquire_slot(container)
                if record is not None and record.parked is not None:
                    opened = engine.notebook(record.parked, busy=record.busy)
                else:
                    opened = engine.notebook()
                kernel.notebook = kernel.opened.enter_context(opened)
                kernel.is_own = record is None
            except SandboxBusy:
                kernel.holder = None
                if not self._make_room(container):
                    raise
        return kernel.notebook

    def _take_share(self, container: Container, kernel: ContainerKernel, *, attach: bool) -> None:
        """Count the kernel for its client. Raises `SandboxBusy`.

        A client gets another kernel while more kernels are free than it has, so that the first of another
        client finds one (dynamic thresholds: Choudhury and Hahne, 1998). Without keys all clients are one.
        """
        with self._lock:
            counts = self._kernel_counts(container.memory_limit)
            own, free = counts[container.client], self._settings.max_kernels - counts.total()
            if container.client and own >= max(free, 1) and not attach:
                raise SandboxBusy(
                    "this client has its share of the kernels", "try again in a moment"
                )
            kernel.holder = (container.client, container.memory_limit)

    def _kernel_counts(self, memory_limit: str) -> Counter[str]:
        """The number of kernels of each client with this limit. Must be called under the lock."""
        holders = [other.holder for other in self._kernels.values() if other.holder is not None]
        return Counter(client for client, memory in holders if memory == memory_limit)

    def _make_room(self, container: Container) -> bool:
        """End the kernel that has been idle for longest. Returns False if there is none.

        A client that has kernels ends one of its own, or of a client that still has as many afterwards:
        otherwise one client could end the kernels of all others.
        """
        since = time.monotonic() - self._settings.interpreter_idle_seconds
        with self._lock:
            counts = self._kernel_counts(container.memory_limit)
            own = counts[container.client]
            others = {client for client, number in counts.items() if own == 0 or number > own + 1}
            holders = {(one, container.memory_limit) for one in {container.client, *others}}
            kernels = [each for each in self._kernels.items() if each[1].holder in holders]
        idle = [each for each in kernels if each[1].is_idle(since)]
        for container_id, kernel in sorted(idle, key=lambda each: each[1].last_used):
            if kernel.lock.acquire(blocking=False):
                try:
                    if kernel.is_idle(since) and self._end_idle(container_id, kernel):
                        return True
                finally:
                    kernel.lock.release()
        return self._end_used_elsewhere()

    def _end_idle(self, container_id: str, kernel: ContainerKernel) -> bool:
        """Return False if the kernel is used by another process, or a cell waits in it there."""
        if self._shared.detach(kernel):
            return True
        if not self._shared.end_idle(container_id):
            return False
        kernel.end()  # the container's record says that it is lost
        return True

    def _end_used_elsewhere(self) -> bool:
        """End a kernel of this process that others used last. Returns False if there is none."""
        return any(
            self._end_superseded(container_id)
            or (self._shared.end_idle(container_id) and self._end_superseded(container_id))
            for container_id in self._containers_elsewhere()
        )

    def _disconnect(self, container_id: str, kernel: ContainerKernel) -> None:
        """Leave the kernel to the process that wrote the container's record, if the record names it."""
        if kernel.is_own and kernel.notebook is not None and kernel.holder is not None:
            parked, memory_limit = kernel.notebook.park(), kernel.holder[1]
            if parked is not None and self._shared.ends_with_process:
                with self._lock:
                    self._used_elsewhere[container_id] = (memory_limit, parked)
        kernel.detach()
        self._end_superseded(container_id)

    def _end_superseded(self, container_id: str) -> bool:
        """End a kernel of this process if its container has another one now or none, else return False."""
        with self._lock:
            parked_kernel = self._used_elsewhere.get(container_id)
        if parked_kernel is None or self._shared.is_current(container_id, parked_kernel[1]):
            return False
        self._end_unused(container_id)
        return True

    def _end_unused(self, container_id: str) -> None:
        """End a kernel of this process that others used last, if there is one."""
        with self._lock:
            parked_kernel = self._used_elsewhere.pop(container_id, None)
        if parked_kernel is not None:
            memory_limit, parked = parked_kernel
            with suppress(SandboxError):  # it has ended
                self._engine(memory_limit).end(parked)

    def _all(self) -> list[tuple[str, ContainerKernel]]:
        """Container ids and their kernels."""
        with self._lock:
            return list(self._kernels.items())

    def _containers_elsewhere(self) -> list[str]:
        """The containers whose kernels this process started and others use, the longest first."""
        with self._lock:
            return list(self._used_elsewhere)

    def touch_busy(self) -> None:
        """Containers in use do not expire, however long a cell runs or waits for approval."""
        for container_id, kernel in self._all():
            if kernel.lock.locked():
                self._containers.touch(container_id)

    def save(self, container: Container, kernel: ContainerKernel, *, runs: bool = False) -> None:
        """Record the kernel's state for other replicas. Must be called within `using`."""
        self._shared.save(container, kernel, runs=runs)

    def waiting_cell(self, call_id: str) -> tuple[str, RunningCell] | None:
        """The container and its cell that waits for this call's result, if it can be resumed from here."""
        return self._shared.waiting_cell(call_id, dict(self._all()))

    def has_run(self, container_id: str) -> bool:
        """Return True if a cell has run in the container."""
        return self._shared.has_run(container_id)

    def detach_moved(self) -> None:
        """Close the connections to kernels that other replicas have attached to."""
        for container_id, kernel in self._shared.moved(self._all()):
            if kernel.lock.acquire(blocking=False):
                try:
                    self._disconnect(container_id, kernel)
                finally:
                    kernel.lock.release()
                with self._lock:
                    self._kernels.pop(container_id, None)
        for container_id in self._containers_elsewhere():
            self._end_superseded(container_id)

    def close(self) -> None:
        """End all kernels, except those that other replicas can attach to."""
        for container_id, kernel in self._all():
            if not self._shared.detach(kernel):
                self._end_here(container_id)
        for container_id in self._containers_elsewhere():
            self._end_unused(container_id)

    def end(self, container_id: str) -> None:
        """End the kernel of a removed container, on any replica."""
        self._end_here(container_id)
        self._shared.end(container_id)

    def _end_here(self, container_id: str) -> None:
        with self._lock:
            kernel = self._kernels.pop(container_id, None)
        self._end_unused(container_id)
        if kernel is not None:
            if kernel.notebook is not None:
                kernel.notebook.kill()
            with kernel.lock:
                kernel.end()


def _container_busy(container_id: str) -> ExecutionDelayed:
    message = f"The container {container_id!r} is busy with other code."
    return ExecutionDelayed(message, code="container_busy")
