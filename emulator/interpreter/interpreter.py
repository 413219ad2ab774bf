"""Run cells in containers: each has a kernel, in which one cell runs at a time.

A container (`containers.py`) outlives its kernel: files are the host's, and go into every new kernel;
variables are the kernel's. A cell that calls a client's function waits inside its kernel, as itself, until
the result comes: what it has done so far must not be done twice. Knows nothing of models, prompts or HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator import metrics
from emulator.client_disconnect import stop_on_disconnect
from emulator.events import CreatedFile, Image, Logs, new_id
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.cell import CellEnded, CellWaiting, RunningCell, Steps
from emulator.interpreter.execution import PICTURES, Execution, image
from emulator.interpreter.file_sync import FileSync
from emulator.interpreter.kernels import ContainerKernel, Kernels
from emulator.interpreter.libraries import LIBRARIES
from emulator.interpreter.pending_cell import DISCONNECTED, ApprovalDecision, PendingCell
from emulator.interpreter.replicas import Replicas
from emulator.programs.program import Call
from emulator.settings import Order, Settings
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxError
from sandbox.kernel.notebook import Notebook

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

_GIVE_IN_SECONDS = 0.5
"""For a cell that is interrupted."""
NEW_SESSION = "the Python session was begun anew: variables are gone, files are still there"


Progress = Logs | Image | PendingCell | CellWaiting | Execution
"""`PendingCell` first if the cell must be approved, outputs as they come, one of the last two last."""


@dataclass(frozen=True)
class WaitingCell:
    """What is known from outside of a cell that waits."""

    container_id: str
    code: str
    calls: Mapping[str, Call]
    """By their ids: those that it waits for."""
    ids: tuple[str, ...]
    """Of all calls that it has made."""


class Interpreter:
    """Runs cells in containers. Safe to share between threads."""

    def __init__(
        self,
        containers: Containers,
        engine: Callable[[str], KernelEngine],
        settings: Settings,
        replicas: Replicas | None = None,
    ) -> None:
        """``engine`` gives the engine for a memory limit (``1g`` ...); raises `SandboxUnavailable`.

        ``replicas`` is what several of them know together.
        """
        self.containers = containers
        self._approvals = Approvals(None if replicas is None else replicas.approvals)
        self._kernels = Kernels(containers, engine, settings, replicas)
        self._engine = engine
        self._settings = settings
        self._libraries: dict[str, str] | None = None

    def run(
        self,
        container: Container,
        code: str,
        toolset: Toolset | None = None,
        key: str = "",
        order: Order = "auto",
    ) -> Iterator[Progress]:
        """Run a cell in which calls of ``toolset``'s functions wait for the client.

        ``key`` names it: ``exec_KEY`` is the id of the execution.
        Raises `ExecutionFailed` where the sandbox is at fault, and what `Containers` raises.
        """
        cell = RunningCell(key or new_id(""), code, toolset or Toolset.parse([]), order)
        with (
            self._kernels.using(container) as kernel,
            stop_on_disconnect(partial(self._stop, kernel, cell)),
        ):
            if container.approval:
                cell.held = held = self._approvals.hold(cell.id, container.id, code)
                try:
                    if cell.gone:
                        held.decide(DISCONNECTED)
                    yield held
                    decision = self._approvals.wait(held, self._settings.approval_seconds)
                finally:
                    self._approvals.release(held)
                if not decision.approved:
                    yield _declined(cell, container, decision)
                    return
                _edited(cell, decision)
            notebook = self._ready(container, kernel, cell)
            yield from self._drive(container, kernel, cell, notebook, notebook.run(cell.code))

    def waiting_cell(self, call_id: str) -> WaitingCell | None:
        """The cell that waits for this call's result."""
        found = self._kernels.waiting(call_id)
        if found is None:
            return None
        container_id, cell = found
        assert cell.waiting is not None
        return WaitingCell(container_id, cell.code, cell.waiting.calls, tuple(cell.ids))

    def resume(self, container: Container, results: Mapping[str, Any]) -> Iterator[Progress]:
        """Give a waiting cell the results of its calls, by id; nothing at all if it waits no more."""
        with self._kernels.using(container) as kernel:
            cell, notebook = kernel.waiting, kernel.notebook
            if cell is None or notebook is None or cell.waiting is None:
                return
            if cell.waiting.calls.keys() != results.keys():
                return
            values = [results[key] for key in cell.waiting.calls]
            cell.gone = False
            with stop_on_disconnect(partial(self._stop, kernel, cell)):
                if cell.gone:
                    yield _declined(cell, container, DISCONNECTED)  # and it waits on
                    return
                kernel.waiting = None
                steps = notebook.run_on_together(values)
                yield from self._drive(container, kernel, cell, notebook, steps)

    def libraries(self, container: Container) -> dict[str, str]:
        """What can be imported in a container's kernel, of what people expect there -> its version."""
        if self._libraries is None:
            with self._kernels.using(container) as kernel:
                self._libraries = self._kernels.open(container, kernel).libraries(LIBRARIES)
        return self._libraries

    def has_been_used(self, container: Container) -> bool:
        """Whether anything has been done in a container: code run, or a file put there."""
        return self._kernels.ran(container.id) or bool(self.containers.files(container.id))

    def pending_cells(self, container_id: str) -> list[PendingCell]:
        """The cells of a container that wait for approval, the oldest first."""
        return self._approvals.of(container_id)

    def decide(
        self, container_id: str, execution_id: str, decision: ApprovalDecision
    ) -> PendingCell:
        """Raises `NotFound` if no such cell waits in that container."""
        return self._approvals.decide(container_id, execution_id, decision)

    def pool_counts(self) -> Mapping[str, int]:
        """Kernels by what they do, where its engines tell: see `InterpreterEngines.pool_counts`."""
        counts: Callable[[], Mapping[str, int]] = getattr(self._engine, "pool_counts", dict)
        return counts()

    def touch_busy(self) -> None:
        """To be called often: containers in use do not expire, and each kernel is one replica's."""
        self._kernels.touch_busy()
        self._kernels.leave_moved()

    def delete(self, client: str, container_id: str) -> None:
        """Delete a container, and end what runs in it. Raises `NotFound`."""
        if self.containers.delete(client, container_id):
            self._end(container_id)

    def sweep(self) -> None:
        """Empty the containers that have expired, and end what runs in them."""
        for container_id in self.containers.sweep():
            self._end(container_id)

    def _end(self, container_id: str) -> None:
        """The container has gone: so does its kernel."""
        self._approvals.drop(container_id)
        self._kernels.end(container_id)

    def close(self) -> None:
        self._approvals.drop_all()
        self._kernels.close()

    def _stop(self, kernel: ContainerKernel, cell: RunningCell) -> None:
        cell.gone = True
        if cell.held is not None:
            cell.held.decide(DISCONNECTED)
        # Not what others run in the container, before this cell's turn or after it.
        if kernel.running is cell and kernel.notebook is not None:
            kernel.notebook.interrupt()
            until = time.monotonic() + _GIVE_IN_SECONDS
            while kernel.running is cell:
                if time.monotonic() > until:
                    kernel.notebook.kill()  # it caught that, and goes on
                    return
                time.sleep(0.02)

    def _ready(self, container: Container, kernel: ContainerKernel, cell: RunningCell) -> Notebook:
        """The container's kernel with the container's files and the cell's functions."""
        kernel.abandon()
        lost = kernel.over
        if lost:
            kernel.end()
            kernel.lost = False
        notebook = self._kernels.open(container, kernel)
        if not kernel.begun:
            # A kernel of which nothing is known here is lost, too: its process died, or Redis forgot it.
            lost |= container.stateful and self.containers.begin_session(container.id)
            kernel.begun = True
        if lost:
            cell.notes.append(NEW_SESSION)
        kernel.ran = True
        kernel.file_sync.bring_in(notebook)
        kernel.offer(cell.toolset)
        return notebook

    def _drive(
        self,
        container: Container,
        kernel: ContainerKernel,
        cell: RunningCell,
        notebook: Notebook,
        steps: Steps,
    ) -> Iterator[Progress]:
        self._kernels.save(container, kernel, runs=True)
        kernel.running = cell
        try:
            if cell.gone:
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
            yield self._ended(container, kernel, cell, ended)

    def _ended(
        self, container: Container, kernel: ContainerKernel, cell: RunningCell, ended: CellEnded
    ) -> Execution:
        assert kernel.notebook is not None
        files = _pictures(cell, kernel.file_sync)
        try:
            if not kernel.notebook.over:
                files += kernel.file_sync.bring_out(kernel.notebook)
        except SandboxError as error:  # what the cell printed is told all the same
            kernel.notebook.kill()
            cell.notes.append(f"the files that it wrote were not kept: {error}")
        over = kernel.notebook.over
        if over:
            cell.notes.append(NEW_SESSION)
            self.containers.end_session(container.id)
        cell.notes += kernel.file_sync.notes
        kernel.file_sync.notes.clear()
        if over or not container.stateful:
            kernel.end()
        self.containers.touch(container.id)
        return cell.execution(container.id, ended, tuple(files))


def _pictures(cell: RunningCell, file_sync: FileSync) -> list[CreatedFile]:
    """What was displayed, as files: so that it can be linked to."""
    files: list[CreatedFile] = []
    for shapes in cell.transcript.displays:
        picture = image(shapes)
        if picture is not None:
            name = f"{cell.id}-{len(files) + 1}.{PICTURES[picture.media_type]}"
            files += file_sync.keep(name, partial(bytes, picture.data))
    return files


def _edited(cell: RunningCell, decision: ApprovalDecision) -> None:
    if decision.code is not None and decision.code != cell.code:
        cell.code = decision.code
        cell.notes.append(f"the user changed the code to:\n{cell.code}\n")


def _declined(cell: RunningCell, container: Container, decision: ApprovalDecision) -> Execution:
    reason = f": {decision.reason}" if decision.reason else "."
    text = f"The user declined to run this code{reason}\n"
    return Execution(
        cell.id, container.id, cell.code, "declined", stderr=text, outputs=(Logs(text),)
    )
