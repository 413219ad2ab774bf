"""The live sandboxes of containers: a kernel for each, in which cells run, one at a time.

A container (`containers.py`) outlives its kernel: files are the host's, and go into every new kernel;
variables are the kernel's. A cell that calls a client's function waits inside its kernel, as itself, until
the result comes: what it has done so far must not be done twice. Knows nothing of models, prompts or HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from emulator import metrics
from emulator.approvals import GONE, Approvals, Decision, Held
from emulator.container_rows import Container
from emulator.containers import Containers
from emulator.errors import ExecutionFailed
from emulator.events import CreatedFile, Image, Logs, new_id
from emulator.executions import PICTURES, Execution, image
from emulator.libraries import LIBRARIES
from emulator.mirror import Mirror
from emulator.programs import Call
from emulator.running import Ended, RunningCell, Steps, Waiting
from emulator.settings import Settings
from emulator.tools import Toolset
from sandbox.errors import SandboxBusy, SandboxError
from sandbox.kernel import KernelEngine
from sandbox.notebook import Notebook

NEW_SESSION = "the Python session was begun anew: variables are gone, files are still there"

Progress = Logs | Image | Held | Waiting | Execution
"""Outputs as they come, `Held` before a cell that must be approved; one of the last two at the end."""


@dataclass(frozen=True)
class WaitingCell:
    """What is known from outside of a cell that waits."""

    container_id: str
    code: str
    call: Call
    ids: tuple[str, ...]
    """Of all calls that it has made, the last of which it waits for."""


class _Live:
    """What one container has of this process. Used under its lock."""

    def __init__(self, mirror: Callable[[], Mirror]) -> None:
        self.lock = threading.Lock()
        self.opened = ExitStack()
        self._new_mirror = mirror
        self.used = time.monotonic()
        self.ran = False
        """A cell has run here."""
        self.made_room = False
        """Its kernel has given way to another container's."""
        self.end()

    def idle_since(self, then: float) -> bool:
        """Whether its kernel has had nothing to do since ``then``; one whose cell waits has."""
        return self.notebook is not None and self.cell is None and self.used <= then

    def end(self) -> None:
        """There is no kernel, or no more."""
        self.opened.close()
        self.notebook: Notebook | None = None
        self.mirror = self._new_mirror()
        self.offered: Toolset | None = None
        self.cell: RunningCell | None = None
        """The cell that waits for the result of its call."""


class Interpreter:
    """Runs cells in containers. Safe to share between threads."""

    def __init__(
        self, containers: Containers, engine: Callable[[str], KernelEngine], settings: Settings
    ) -> None:
        """``engine`` gives the engine for a memory limit (``1g`` ...); raises `SandboxUnavailable`."""
        self.containers = containers
        self.approvals = Approvals()
        self._engine = engine
        self._settings = settings
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._libraries: dict[str, str] | None = None

    def run(
        self, container: Container, code: str, toolset: Toolset | None = None, key: str = ""
    ) -> Iterator[Progress]:
        """Run a cell in which calls of ``toolset``'s functions wait for the client.

        ``key`` names it: ``exec_KEY`` is the id of the execution.
        Raises `ExecutionFailed` where the sandbox is at fault, and what `Containers` raises.
        """
        cell = RunningCell(key or new_id(""), code, toolset or Toolset.parse([]))
        with self._using(container) as live:
            if container.approval:
                held = self.approvals.hold(cell.id, container.id, code)
                try:
                    yield held
                    decision = held.wait(self._settings.approval_seconds)
                finally:
                    self.approvals.release(held)
                if not decision.approved:
                    yield _declined(cell, container, decision)
                    return
                _edited(cell, decision)
            notebook = self._ready(container, live, cell)
            yield from self._drive(container, live, cell, notebook, notebook.run(cell.code))

    def waiting(self, call_id: str) -> WaitingCell | None:
        """The cell that waits for this call's result."""
        with self._lock:
            for container_id, live in self._live.items():
                cell = live.cell
                if cell and cell.waiting and cell.waiting.id == call_id:
                    call, ids = cell.waiting.call, tuple(cell.ids)
                    return WaitingCell(container_id, cell.code, call, ids)
        return None

    def go_on(self, container: Container, call_id: str, value: Any) -> Iterator[Progress]:
        """Give a waiting cell the result of its call; nothing at all if it waits no more."""
        with self._using(container) as live:
            cell, notebook = live.cell, live.notebook
            if cell is None or notebook is None or cell.waiting is None:
                return
            if cell.waiting.id == call_id:
                live.cell = None
                yield from self._drive(container, live, cell, notebook, notebook.run_on(value))

    def libraries(self, container: Container) -> dict[str, str]:
        """What can be imported in a container's kernel, of what people expect there -> its version."""
        if self._libraries is None:
            with self._using(container) as live:
                self._libraries = self._open(container, live).libraries(LIBRARIES)
        return self._libraries

    def used(self, container: Container) -> bool:
        """Whether anything has been done in a container: code run, or a file put there."""
        with self._lock:
            live = self._live.get(container.id)
        ran = live is not None and live.ran
        return ran or bool(self.containers.files(container.id))

    def interrupt(self, container_id: str) -> None:
        """Stop the cell that runs in a container, if one does. Callable from any thread."""
        live = self._live.get(container_id)
        if live is not None and live.notebook is not None:
            live.notebook.interrupt()

    def leave(self, held: Held) -> None:
        """Whoever asked for a held cell has gone: do not run it, or stop it if it runs by now."""
        if held.decide(GONE).approved:
            self.interrupt(held.container_id)

    def end(self, container_id: str) -> None:
        """The container has gone: so does its kernel."""
        with self._lock:
            live = self._live.pop(container_id, None)
        self.approvals.drop(container_id)
        if live is not None:
            if live.notebook is not None:
                live.notebook.kill()
            with live.lock:
                live.end()

    def close(self) -> None:
        for container_id in list(self._live):
            self.end(container_id)

    @contextmanager
    def _using(self, container: Container) -> Iterator[_Live]:
        """The container, for this thread alone."""
        mirror = partial(Mirror, self.containers, container.id, self._settings.container_bytes)
        with self._lock:
            live = self._live.setdefault(container.id, _Live(mirror))
        if not live.lock.acquire(timeout=self._settings.interpreter_seconds):
            raise ExecutionFailed(
                f"The container {container.id!r} is busy with other code.",
                code="container_busy",
                headers={"retry-after": "1"},
            )
        try:
            self.containers.touch(container.id)
            yield live
        except SandboxBusy as error:
            message = f"The code could not be run now: {error}"
            raise ExecutionFailed(
                message, code="overloaded", headers={"retry-after": "1"}
            ) from error
        except SandboxError as error:
            live.end()
            raise ExecutionFailed(f"The code could not be run: {error}") from error
        finally:
            live.used = time.monotonic()
            live.lock.release()

    def _ready(self, container: Container, live: _Live, cell: RunningCell) -> Notebook:
        """The container's kernel with the container's files and the cell's functions."""
        if live.cell is not None:
            self._abandon(live)
        if live.made_room or (live.notebook is not None and live.notebook.over):
            live.end()
            live.made_room = False
            cell.notes.append(NEW_SESSION)
        notebook = self._open(container, live)
        live.ran = True
        live.mirror.bring_in(notebook)
        if live.offered is not cell.toolset:
            notebook.offer(cell.toolset.names, cell.toolset.preamble)
            live.offered = cell.toolset
        return notebook

    def _open(self, container: Container, live: _Live) -> Notebook:
        """The container's kernel, if need be in place of one that has long been idle."""
        engine = self._engine(container.memory_limit)
        while live.notebook is None:
            try:
                live.notebook = live.opened.enter_context(engine.notebook())
            except SandboxBusy:
                if not self._make_room():
                    raise
        return live.notebook

    def _make_room(self) -> bool:
        """End the kernel that has been idle for longest, if that is long enough."""
        until = time.monotonic() - self._settings.interpreter_idle_seconds
        with self._lock:
            idle = [live for live in self._live.values() if live.idle_since(until)]
        for live in sorted(idle, key=lambda live: live.used):
            if live.lock.acquire(blocking=False):
                try:
                    if live.idle_since(until):
                        live.end()
                        live.made_room = True
                        return True
                finally:
                    live.lock.release()
        return False

    def _abandon(self, live: _Live) -> None:
        """Nobody will bring the result that a cell waits for: its call raises, and any further one."""
        live.cell = None
        notebook = live.notebook
        with suppress(SandboxError):
            while notebook is not None and notebook.paused:
                for _ in notebook.refuse("the call was given up"):
                    pass

    def _drive(
        self,
        container: Container,
        live: _Live,
        cell: RunningCell,
        notebook: Notebook,
        steps: Steps,
    ) -> Iterator[Progress]:
        ended = yield from cell.drive(notebook, steps)
        if isinstance(ended, Waiting):
            live.cell = cell
            yield ended
        else:
            metrics.CELLS.labels(ended.status).inc()
            yield self._ended(container, live, cell, ended)

    def _ended(
        self, container: Container, live: _Live, cell: RunningCell, ended: Ended
    ) -> Execution:
        assert live.notebook is not None
        files = _pictures(cell, live.mirror)
        if live.notebook.over:
            cell.notes.append(NEW_SESSION)
        else:
            files += live.mirror.bring_out(live.notebook)
        cell.notes += live.mirror.notes
        live.mirror.notes.clear()
        if live.notebook.over or not container.stateful:
            live.end()
        self.containers.touch(container.id)
        return cell.execution(container.id, ended, tuple(files))


def _pictures(cell: RunningCell, mirror: Mirror) -> list[CreatedFile]:
    """What was displayed, as files: so that it can be linked to."""
    kept: list[CreatedFile] = []
    for shapes in cell.transcript.displays:
        picture = image(shapes)
        if picture is not None:
            name = f"{cell.id}-{len(kept) + 1}.{PICTURES[picture.media_type]}"
            kept += mirror.keep(name, partial(bytes, picture.data))
    return kept


def _edited(cell: RunningCell, decision: Decision) -> None:
    if decision.code is not None and decision.code != cell.code:
        cell.code = decision.code
        cell.notes.append(f"the user changed the code to:\n{cell.code}\n")


def _declined(cell: RunningCell, container: Container, decision: Decision) -> Execution:
    reason = f": {decision.reason}" if decision.reason else "."
    text = f"The user declined to run this code{reason}\n"
    return Execution(
        cell.id, container.id, cell.code, "declined", stderr=text, outputs=(Logs(text),)
    )
