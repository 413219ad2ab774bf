"""Runs cells in containers: each container has a kernel, in which one cell runs at a time.

    run ──► pending approval ──► kernel ready, files copied in ──► running ──► files copied out ──► Execution
                  │                                                  ▼  ▲
                  └─► declined ──► Execution            waiting for results of its calls

A container (`emulator.storage.containers`) outlives its kernel: files belong to the host and go into every
new kernel; variables belong to the kernel. A cell that calls a client's function waits inside its kernel
until the result arrives, because running it again would repeat its effects. Knows nothing of models, prompts
or HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.core import metrics
from emulator.core.client_disconnect import stop_on_disconnect
from emulator.core.events import CreatedFile, Image, Logs, new_id
from emulator.database import Database, Leases
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.cell import CellEnded, CellWaiting, RunningCell, Steps
from emulator.interpreter.container_kernel import ContainerKernel
from emulator.interpreter.execution import PICTURES, Execution, image
from emulator.interpreter.file_sync import FileSync
from emulator.interpreter.kernels import Kernels
from emulator.interpreter.libraries import LIBRARIES
from emulator.interpreter.pending_approval import DISCONNECTED, ApprovalDecision, PendingApproval
from emulator.interpreter.shared_kernels import SharedKernels
from emulator.programs.program import Call
from emulator.settings.settings import Order, Settings
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxError
from sandbox.kernel.notebook import Notebook

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

_INTERRUPT_SECONDS = 0.5
"""A cell that still runs this long after an interrupt is killed with its kernel."""
NEW_SESSION = "the Python session was restarted: variables are gone, files are still there"


Progress = Logs | Image | PendingApproval | CellWaiting | Execution
"""First `PendingApproval` if the cell must be approved; then outputs; last one of the last two."""


@dataclass(frozen=True)
class WaitingCell:
    """A waiting cell as requests see it."""

    key: str
    """Of `Interpreter.run`."""
    container_id: str
    code: str
    calls: Mapping[str, Call]
    """The calls whose results it waits for, by their ids."""
    ids: tuple[str, ...]
    """The ids of all calls that it has made."""


@dataclass
class _CellRequest:
    """One client request that runs or resumes a cell."""

    cell: RunningCell
    pending: PendingApproval | None = None
    """Set once the cell needed approval."""
    disconnected: bool = False


class Interpreter:
    """Safe to share between threads."""

    def __init__(
        self,
        containers: Containers,
        engine: Callable[[str], KernelEngine],
        approvals: Approvals,
        database: Database,
        leases: Leases,
        settings: Settings,
    ) -> None:
        """``engine`` returns the engine for a memory limit (``1g`` ...), or raises `SandboxUnavailable`."""
        self.containers = containers
        self._engine = engine
        self._settings = settings
        self._approvals = approvals
        shared = SharedKernels(database, leases, engine, settings)
        self._kernels = Kernels(containers, engine, shared, settings)
        self._libraries: dict[str, str] | None = None

    def run(
        self,
        container: Container,
        code: str,
        toolset: Toolset | None = None,
        key: str = "",
        order: Order = "auto",
    ) -> Iterator[Progress]:
        """Run a cell. Calls of ``toolset``'s functions wait for the client.

        ``exec_KEY`` is the id of the execution. Raises `ExecutionFailed` if the sandbox is at fault, and
        what `Containers` raises.
        """
        cell = RunningCell(key or new_id(""), code, toolset or Toolset.parse([]), order)
        request = _CellRequest(cell)
        with (
            self._kernels.using(container) as kernel,
            stop_on_disconnect(partial(self._stop, kernel, request)),
        ):
            if container.approval:
                request.pending = pending = self._approvals.add(cell.id, container.id, code)
                try:
                    if request.disconnected:
                        pending.refuse(DISCONNECTED)
                    yield pending
                    decision = self._approvals.wait(pending, self._settings.approval_seconds)
                finally:
                    self._approvals.remove(pending)
                if not decision.approved:
                    yield _declined(cell, container, decision)
                    return
                _apply_edit(cell, decision)
            notebook = self._ready(container, kernel, cell)
            yield from self._drive(container, kernel, request, notebook, notebook.run(cell.code))

    def waiting_cell(self, call_id: str) -> WaitingCell | None:
        """The cell that waits for this call's result."""
        found = self._kernels.waiting_cell(call_id)
        if found is None:
            return None
        container_id, cell = found
        assert cell.waiting is not None
        return WaitingCell(cell.key, container_id, cell.code, cell.waiting.calls, tuple(cell.ids))

    def resume(
        self,
        container: Container,
        results: Mapping[str, Any],
        toolset: Toolset,
        refused: Mapping[str, str] | None = None,
    ) -> Iterator[Progress]:
        """Give a waiting cell the results of its calls, by id. Yields nothing if it no longer waits.

        From now on it may call the functions of ``toolset``. ``refused`` has the calls after which it
        makes no further one: id -> why.
        """
        with self._kernels.using(container) as kernel:
            cell, notebook = kernel.waiting, kernel.notebook
            if cell is None or notebook is None or cell.waiting is None:
                return
            if cell.waiting.calls.keys() != results.keys():
                return
            values = [results[key] for key in cell.waiting.calls]
            cell.toolset = toolset
            cell.refused = next(iter((refused or {}).values()), cell.refused)
            request = _CellRequest(cell)
            with stop_on_disconnect(partial(self._stop, kernel, request)):
                if request.disconnected:
                    yield _declined(cell, container, DISCONNECTED)  # the cell still waits
                    return
                kernel.waiting = None
                steps = notebook.resume_with(values)
                yield from self._drive(container, kernel, request, notebook, steps)

    def libraries(self, container: Container) -> dict[str, str]:
        """The `LIBRARIES` that a container's kernel has -> their versions."""
        if self._libraries is None:
            with self._kernels.using(container) as kernel:
                self._libraries = self._kernels.open(container, kernel).libraries(LIBRARIES)
        return self._libraries

    def has_been_used(self, container: Container) -> bool:
        """Return True if code has run in a container, or it has files."""
        return self._kernels.has_run(container.id) or bool(self.containers.files(container.id))

    def pending_cells(self, container_id: str) -> list[PendingApproval]:
        """The cells of a container that wait for approval, oldest first."""
        return self._approvals.pending(container_id)

    def decide(
        self, container_id: str, execution_id: str, decision: ApprovalDecision
    ) -> PendingApproval:
        """Raises `NotFound` if no such cell waits for approval in that container."""
        return self._approvals.decide(container_id, execution_id, decision)

    def pool_counts(self) -> Mapping[str, int]:
        """Kernels by state, if the engines count them: see `InterpreterEngines.pool_counts`."""
        counts: Callable[[], Mapping[str, int]] = getattr(self._engine, "pool_counts", dict)
        return counts()

    def touch_busy(self) -> None:
        """Called every few seconds: containers in use do not expire; moved kernels are detached."""
        self._kernels.touch_busy()
        self._kernels.detach_moved()
        release: Callable[[], None] = getattr(self._engine, "release_ended", lambda: None)
        release()

    def delete(self, client: str, container_id: str) -> None:
        """Delete a container, and end what runs in it. Raises `NotFound`."""
        if self.containers.delete(client, container_id):
            self._end(container_id)

    def sweep(self) -> None:
        """Empty the containers that have expired, and end what runs in them."""
        for container_id in self.containers.sweep():
            self._end(container_id)

    def _end(self, container_id: str) -> None:
        """The container is gone."""
        self._approvals.decline_all_of(container_id)
        self._kernels.end(container_id)

    def close(self) -> None:
        self._kernels.close()

    def _stop(self, kernel: ContainerKernel, request: _CellRequest) -> None:
        """The client has disconnected."""
        request.disconnected = True
        if request.pending is not None:
            request.pending.refuse(DISCONNECTED)
        # Only this request's cell: before its turn and after it, others run in the container.
        cell = request.cell
        if kernel.running is cell and kernel.notebook is not None:
            kernel.notebook.interrupt()
            until = time.monotonic() + _INTERRUPT_SECONDS
            while kernel.running is cell:
                if time.monotonic() > until:
                    kernel.notebook.kill()  # the cell caught the interrupt
                    return
                time.sleep(0.02)

    def _ready(self, container: Container, kernel: ContainerKernel, cell: RunningCell) -> Notebook:
        """The container's kernel, with the container's files and the cell's functions."""
        kernel.abandon_waiting_cell()
        lost = kernel.was_lost
        if lost:
            kernel.end()
            kernel.lost = False
        notebook = self._kernels.open(container, kernel)
        if not kernel.session_recorded:
            # Without this process knowing, a session is lost if its process died or its record is gone.
            lost |= container.stateful and self.containers.begin_session(container.id)
            kernel.session_recorded = True
        if lost:
            cell.notes.append(NEW_SESSION)
        kernel.has_run = True
        kernel.file_sync.bring_in(notebook)
        kernel.offer(cell.toolset)
        return notebook

    def _drive(
        self,
        container: Container,
        kernel: ContainerKernel,
        request: _CellRequest,
        notebook: Notebook,
        steps: Steps,
    ) -> Iterator[Progress]:
        cell = request.cell
        self._kernels.save(container, kernel, runs=True)
        kernel.running = cell
        try:
            if request.disconnected:
                yield _declined(cell, container, DISCONNECTED)
                return
            ended = yield from cell.drive(notebook, steps)
        finally:
            kernel.running = None
        if isinstance(ended, CellWaiting):
            kernel.waiting = cell
            self._kernels.save(container, kernel)
            yield ended
        else:
            metrics.CELLS.labels(ended.status).inc()
            yield self._finish(container, kernel, cell, ended)

    def _finish(
        self, container: Container, kernel: ContainerKernel, cell: RunningCell, ended: CellEnded
    ) -> Execution:
        assert kernel.notebook is not None
        files = _store_pictures(cell, kernel.file_sync)
        try:
            if not kernel.notebook.ended:
                files += kernel.file_sync.bring_out(kernel.notebook)
        except SandboxError as error:  # the cell's output is reported anyway
            kernel.notebook.kill()
            cell.notes.append(f"the files that it wrote were not kept: {error}")
        has_ended = kernel.notebook.ended
        if has_ended:
            cell.notes.append(NEW_SESSION)
            self.containers.end_session(container.id)
        cell.notes += kernel.file_sync.notes
        kernel.file_sync.notes.clear()
        if has_ended or not container.stateful:
            kernel.end()
        self.containers.touch(container.id)
        return cell.execution(container.id, ended, tuple(files))


def _store_pictures(cell: RunningCell, file_sync: FileSync) -> list[CreatedFile]:
    """Store each displayed picture as a file, so that a client can link to it."""
    files: list[CreatedFile] = []
    for shapes in cell.transcript.displays:
        picture = image(shapes)
        if picture is not None:
            name = f"{cell.id}-{len(files) + 1}.{PICTURES[picture.media_type]}"
            files += file_sync.store(name, partial(bytes, picture.data))
    return files


def _apply_edit(cell: RunningCell, decision: ApprovalDecision) -> None:
    if decision.code is not None and decision.code != cell.code:
        cell.code = decision.code
        cell.notes.append(f"the user changed the code to:\n{cell.code}\n")


def _declined(cell: RunningCell, container: Container, decision: ApprovalDecision) -> Execution:
    reason = f": {decision.reason}" if decision.reason else "."
    text = f"The user declined to run this code{reason}\n"
    return Execution(
        cell.id, container.id, cell.code, "declined", stderr=text, outputs=(Logs(text),)
    )
