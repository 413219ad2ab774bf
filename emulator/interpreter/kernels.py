"""The live kernels of containers: at most one each, used by one request at a time.

Knows nothing of what runs in them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from emulator.errors import ExecutionFailed
from emulator.interpreter.cell import RunningCell
from emulator.interpreter.file_sync import FileSync
from emulator.interpreter.replicas import Replicas
from emulator.interpreter.shared_kernels import SharedKernels, container_busy
from emulator.settings import Settings
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxBusy, SandboxError
from sandbox.kernel.notebook import Notebook
from sandbox.kernel.parked import Parked

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine


class ContainerKernel:
    """What one container has of this process. Changed only under its lock."""

    def __init__(self, file_sync: Callable[[], FileSync]) -> None:
        self.lock = threading.Lock()
        self.opened = ExitStack()
        self.notebook: Notebook | None = None
        self._new_file_sync = file_sync
        self.used = time.monotonic()
        """When it was last used."""
        self.ran = False
        """A cell has run here."""
        self.lost = False
        """Its kernel has given way to another container's."""
        self.running: RunningCell | None = None
        self.stamp = ""
        """Of the record that was last written here, where kernels are shared."""
        self.holds: Callable[[], bool] = lambda: True
        """Whether the kernel is this replica's to end."""
        self.end()

    @property
    def over(self) -> bool:
        """There was a kernel, which is no more."""
        return self.lost or (self.notebook is not None and self.notebook.over)

    def idle_since(self, then: float) -> bool:
        """Whether its kernel has had nothing to do since ``then``; one whose cell waits has."""
        return self.notebook is not None and self.waiting is None and self.used <= then

    def end(self) -> None:
        """There is no kernel, or no more."""
        if self.notebook is not None and not self.holds():
            self.notebook.leave()
        self.opened.close()
        self.notebook = None
        self.file_sync = self._new_file_sync()
        self.begun = False
        """A cell has run in this kernel, and the container's row says so."""
        self.offered: Toolset | None = None
        """Whose functions the kernel knows."""
        self.waiting: RunningCell | None = None
        """The cell that waits for the result of its call."""

    def leave(self) -> None:
        """There is no kernel here any more; it may live on for another replica."""
        if self.notebook is not None:
            self.notebook.leave()
        self.end()

    def offer(self, toolset: Toolset) -> None:
        """Let calls of these functions, and of no others, pause."""
        if self.notebook is not None and self.offered is not toolset:
            self.notebook.offer(toolset.names, toolset.preamble)
            self.offered = toolset

    def abandon(self) -> None:
        """Nobody will bring the result that a cell waits for: its call raises, and any further one."""
        self.waiting = None
        notebook = self.notebook
        with suppress(SandboxError):
            while notebook is not None and notebook.paused:
                for _ in notebook.refuse("the call was given up"):
                    pass


class Kernels:
    """Safe to share between threads."""

    def __init__(
        self,
        containers: Containers,
        engine: Callable[[str], KernelEngine],
        settings: Settings,
        replicas: Replicas | None = None,
    ) -> None:
        """``engine`` gives the engine for a memory limit (``1g`` ...); raises `SandboxUnavailable`.

        ``replicas`` is what they know together, if there are several.
        """
        self._containers = containers
        self._engine = engine
        self._settings = settings
        self._lock = threading.Lock()
        self._kernels: dict[str, ContainerKernel] = {}
        self._shared: SharedKernels | None = None
        if replicas is not None:
            self._shared = SharedKernels(replicas, engine, self.open, settings)

    @contextmanager
    def using(self, container: Container) -> Iterator[ContainerKernel]:
        """The container, for this request alone.

        Raises `ExecutionFailed`, also for what a sandbox raises in the block.
        """
        file_sync = partial(
            FileSync, self._containers, container.id, self._settings.container_bytes
        )
        with self._lock:
            kernel = self._kernels.setdefault(container.id, ContainerKernel(file_sync))
        if not kernel.lock.acquire(timeout=self._settings.interpreter_seconds):
            raise container_busy(container.id)
        try:
            self._containers.touch(container.id)
            if self._shared is None:
                yield kernel
            else:
                with self._shared.having(container, kernel):
                    yield kernel
        except SandboxBusy as error:
            message = f"The code could not be run now: {error}"
            raise ExecutionFailed(
                message, code="overloaded", headers={"retry-after": "1"}
            ) from error
        except SandboxError as error:
            kernel.end()
            raise ExecutionFailed(f"The code could not be run: {error}") from error
        finally:
            kernel.used = time.monotonic()
            kernel.lock.release()

    def open(
        self,
        container: Container,
        kernel: ContainerKernel,
        parked: Parked | None = None,
        *,
        busy: bool = False,
    ) -> Notebook:
        """The container's kernel, if need be in place of one that has long been idle.

        With ``parked``, the one that another replica has begun: see `KernelEngine.notebook`.
        """
        engine = self._engine(container.memory_limit)
        if self._shared is not None and kernel.notebook is None and parked is None:
            self._shared.take_place(container)
        while kernel.notebook is None:
            try:
                opened = engine.notebook(parked, busy=busy) if parked else engine.notebook()
                kernel.notebook = kernel.opened.enter_context(opened)
            except SandboxBusy:
                if not self._make_room():
                    raise
        return kernel.notebook

    def _make_room(self) -> bool:
        """End the kernel that has been idle for longest, if that is long enough."""
        until = time.monotonic() - self._settings.interpreter_idle_seconds
        idle = [kernel for _, kernel in self.all() if kernel.idle_since(until)]
        for kernel in sorted(idle, key=lambda kernel: kernel.used):
            if kernel.lock.acquire(blocking=False):
                try:
                    if kernel.idle_since(until):
                        if self._shared is None or not self._shared.leave(kernel):
                            kernel.end()
                            kernel.lost = True
                        return True
                finally:
                    kernel.lock.release()
        return False

    def all(self) -> list[tuple[str, ContainerKernel]]:
        """Containers' ids, and what they have."""
        with self._lock:
            return list(self._kernels.items())

    def touch_busy(self) -> None:
        """What is in use does not expire, however long a cell runs or waits for approval."""
        for container_id, kernel in self.all():
            if kernel.lock.locked():
                self._containers.touch(container_id)

    def save(self, container: Container, kernel: ContainerKernel, *, runs: bool = False) -> None:
        """Let other replicas, if there are any, know of what is now; to be called within `using`."""
        if self._shared is not None:
            self._shared.save(container, kernel, runs=runs)

    def waiting(self, call_id: str) -> tuple[str, RunningCell] | None:
        """The cell that waits for this call's result, here or where it can be gone on with from here."""
        if self._shared is not None:
            return self._shared.waiting(call_id, dict(self.all()))
        for container_id, kernel in self.all():
            cell = kernel.waiting
            if cell is not None and cell.waiting is not None and call_id in cell.waiting.calls:
                return container_id, cell
        return None

    def ran(self, container_id: str) -> bool:
        """Whether a cell has run in the container."""
        kernel = dict(self.all()).get(container_id)
        if kernel is not None and kernel.ran:
            return True
        return self._shared is not None and self._shared.ran(container_id)

    def leave_moved(self) -> None:
        """Give up the connections to kernels that other replicas have taken over."""
        if self._shared is None:
            return
        for container_id, kernel in self._shared.moved(self.all()):
            if kernel.lock.acquire(blocking=False):
                try:
                    kernel.leave()
                finally:
                    kernel.lock.release()
                with self._lock:
                    self._kernels.pop(container_id, None)

    def close(self) -> None:
        """End all kernels, or leave them to other replicas."""
        for container_id, kernel in self.all():
            if self._shared is None or not self._shared.leave(kernel):
                self._end_here(container_id)

    def end(self, container_id: str) -> None:
        """The container has gone: so does its kernel."""
        self._end_here(container_id)
        if self._shared is not None:
            self._shared.end(container_id)

    def _end_here(self, container_id: str) -> None:
        with self._lock:
            kernel = self._kernels.pop(container_id, None)
        if kernel is not None:
            if kernel.notebook is not None:
                kernel.notebook.kill()
            with kernel.lock:
                kernel.end()
