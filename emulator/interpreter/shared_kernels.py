"""Kernels that any replica goes on with: the one that has the container's lease is connected to its kernel.

A record in the shared store says where the kernel is and how far its session was. A replica that finds a
record other than its own last one lets its connection go and takes the kernel over. Where kernels end
with their process (bubblewrap, Docker) there is nothing to take over: the cell is told that its session was
begun anew.
Knows nothing of what runs in kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from emulator.errors import ExecutionFailed
from emulator.interpreter.cell import RunningCell
from emulator.interpreter.kernel_places import KernelPlaces
from emulator.interpreter.kernel_records import (
    Busy,
    KernelRecord,
    stored_cell,
    waiting_cell,
)
from emulator.interpreter.replicas import Replicas
from emulator.settings import Settings
from emulator.storage.container_rows import Container
from emulator.storage.key_value import StoreFailed
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxBusy, SandboxDied, SandboxError

if TYPE_CHECKING:
    from emulator.interpreter.kernels import ContainerKernel
    from sandbox.kernel.engine import KernelEngine
    from sandbox.kernel.notebook import Notebook

log = structlog.get_logger()


class SharedKernels:
    """Safe to share between threads."""

    def __init__(
        self,
        replicas: Replicas,
        engine: Callable[[str], KernelEngine],
        open_kernel: Callable[..., Notebook],
        settings: Settings,
    ) -> None:
        """``open_kernel`` is `Kernels.open`."""
        self.records = replicas.records
        self._places = replicas.places
        self._engine = engine
        self._open = open_kernel
        self._settings = settings

    @contextmanager
    def having(self, container: Container, kernel: ContainerKernel) -> Iterator[None]:
        """The container for this replica alone, with its kernel as it is now.

        Raises `ExecutionFailed` where that cannot be said, and `SandboxUnavailable`.
        """
        try:
            with self.records.lease(container.id, self._settings.interpreter_seconds) as lease:
                kernel.holds = lease.holds
                self._take_over(container, kernel)
                try:
                    yield
                except SandboxError:
                    kernel.end()
                    raise
                finally:
                    self._save_at_last(container, kernel)
                    self._place_at_last(container, kernel)
                    kernel.holds = lambda: True
        except Busy as error:
            raise container_busy(container.id) from error
        except StoreFailed as error:
            raise ExecutionFailed(
                "The code could not be run: which replica has the container is not known just now.",
                code="overloaded",
                headers={"retry-after": "1"},
            ) from error

    def save(self, container: Container, kernel: ContainerKernel, *, runs: bool = False) -> None:
        """Let other replicas know. Raises `StoreFailed`."""
        if not kernel.holds():
            return  # another has it by now
        notebook = kernel.notebook
        if notebook is not None and notebook.over:
            notebook = None
        if notebook is None and not (kernel.ran or kernel.lost):
            return
        parked = None if notebook is None else notebook.park()
        if runs and parked is not None:
            parked = replace(parked, running=None)  # its call is answered
        record = KernelRecord(
            memory_limit=container.memory_limit,
            ran=kernel.ran,
            open=notebook is not None or kernel.over,
            busy=runs,
            parked=parked,
            files=kernel.file_sync.state(),
            tools=None if kernel.offered is None else [dict(t) for t in kernel.offered.definitions],
            cell=None if kernel.waiting is None else stored_cell(kernel.waiting),
        )
        kernel.stamp = ""  # whatever comes of it, it is not what it was
        self.records.put(container.id, record)
        kernel.stamp = record.stamp

    def take_place(self, container: Container) -> None:
        """One of the kernels that all replicas may have together. Raises `SandboxBusy`, `StoreFailed`.

        If need be, that of the kernel which has been idle for longest, wherever it was used.
        """
        if self._places is None:
            return
        while not self._places.take(container.id, self._place_seconds(container)):
            if not self._make_room(self._places):
                raise SandboxBusy(
                    f"all {self._places.most} kernels of all replicas are in use",
                    "try again in a moment",
                )

    def leave(self, kernel: ContainerKernel) -> bool:
        """Leave a kernel to other replicas; False if it would end with this one."""
        if kernel.notebook is None or kernel.notebook.park() is None:
            return False
        kernel.leave()
        kernel.stamp = ""
        return True

    def moved(
        self, kernels: Sequence[tuple[str, ContainerKernel]]
    ) -> list[tuple[str, ContainerKernel]]:
        """Those that others have taken over, or whose containers have gone."""
        idle = {
            container_id: kernel
            for container_id, kernel in kernels
            if kernel.notebook is not None and not kernel.lock.locked()
        }
        try:
            stamps = self.records.stamps(idle)
        except StoreFailed:
            return []  # nothing is known of them
        return [each for each in idle.items() if stamps.get(each[0]) != each[1].stamp]

    def waiting(
        self, call_id: str, here: Mapping[str, ContainerKernel]
    ) -> tuple[str, RunningCell] | None:
        """The cell that waits for this call's result, if its kernel can be reached from here."""
        try:
            container_id = self.records.container_of(call_id) if call_id else None
            record = self.records.get(container_id) if container_id else None
        except StoreFailed:
            return None  # an ordinary turn
        if not container_id or record is None or record.cell is None:
            return None
        known = here.get(container_id)
        at_home = known is not None and known.stamp == record.stamp
        if call_id not in record.cell.calls or not (record.parked or at_home):
            return None
        return container_id, waiting_cell(record.cell)

    def ran(self, container_id: str) -> bool:
        try:
            record = self.records.get(container_id)
        except StoreFailed:
            return True  # rather kept than lost
        return record is not None and record.ran

    def end(self, container_id: str) -> None:
        """The container has gone: so does its kernel, whoever has had it."""
        try:
            record = self.records.get(container_id)
            self.records.forget(container_id)
            if self._places is not None:
                self._places.leave(container_id)
            if record is not None and record.parked is not None:
                self._engine(record.memory_limit).end(record.parked)
        except SandboxDied:
            pass
        except (StoreFailed, SandboxError) as error:
            log.warning("the kernel of a container that has gone was not ended", reason=str(error))

    def _take_over(self, container: Container, kernel: ContainerKernel) -> None:
        record = self.records.get(container.id)
        alive = kernel.notebook is None or not kernel.notebook.over
        if record is None or (record.stamp == kernel.stamp and alive):
            return
        if record.stamp == kernel.stamp and record.parked is None:
            return  # it was here, and has ended: as of one replica
        kernel.leave()
        kernel.ran, kernel.lost = record.ran, False
        if record.parked is None:
            kernel.lost = record.open
            return
        try:
            self._open(container, kernel, record.parked, busy=record.busy)
        except SandboxDied as error:
            log.warning("the kernel of a container has ended", reason=str(error))
            kernel.lost = True
            return
        kernel.begun = record.ran
        kernel.file_sync.resume(record.files)
        kernel.offered = None if record.tools is None else Toolset.parse(record.tools)
        kernel.waiting = None if record.cell is None else waiting_cell(record.cell)

    def _make_room(self, places: KernelPlaces) -> bool:
        """End the kernel that has been idle for longest, if that is long enough. Raises `StoreFailed`."""
        enough = self._settings.interpreter_idle_seconds
        for container_id in places.idle(enough):
            try:
                with self.records.lease(container_id, 0.0):
                    # Now nobody uses it; but it may have been used since it was looked at.
                    if container_id in places.idle(enough) and self._give_way(container_id):
                        places.leave(container_id)
                        return True
            except Busy:
                continue
            except SandboxError as error:
                log.warning("an idle kernel was not ended", reason=str(error))
        return False

    def _give_way(self, container_id: str) -> bool:
        """End a container's kernel, wherever it was used last; False if a cell waits in it."""
        record = self.records.get(container_id)
        if record is None:
            return True
        if record.cell is not None:
            return False
        if record.parked is not None:
            with suppress(SandboxDied):
                self._engine(record.memory_limit).end(record.parked)
        self.records.put(container_id, record.without_kernel())
        return True

    def _place_at_last(self, container: Container, kernel: ContainerKernel) -> None:
        if self._places is None or not kernel.holds():
            return
        try:
            if kernel.notebook is None or kernel.notebook.over:
                self._places.leave(container.id)
            else:
                self._places.keep(container.id, self._place_seconds(container))
        except StoreFailed as error:
            log.warning("how many kernels there are is not known", reason=str(error))

    def _place_seconds(self, container: Container) -> float:
        """Longer than a container can live after its kernel was last used."""
        of_a_cell = self._settings.approval_seconds + self._settings.interpreter_seconds
        return 60.0 * container.expires_minutes + of_a_cell + 60.0

    def _save_at_last(self, container: Container, kernel: ContainerKernel) -> None:
        try:
            self.save(container, kernel)
        except StoreFailed as error:
            log.warning("what a cell has done is not known to other replicas", reason=str(error))


def container_busy(container_id: str) -> ExecutionFailed:
    return ExecutionFailed(
        f"The container {container_id!r} is busy with other code.",
        code="container_busy",
        headers={"retry-after": "1"},
    )
