"""The live sandboxes of containers: a kernel for each, cells run in it, files kept in step.

A container (`containers.py`) outlives its kernel: files are the host's, and go into every new kernel;
variables are the kernel's. One cell at a time runs in a container. A cell that calls a client's function
waits inside its kernel, as itself, until the result comes: what it has done so far must not be done
twice. Knows nothing of models, prompts or HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from emulator.approvals import GONE, Approvals, Held
from emulator.containers import Container, Containers
from emulator.errors import EmulatorError, ExecutionFailed
from emulator.events import CreatedFile, Image, Logs, new_id
from emulator.executions import PICTURES, Execution, Status, Transcript, image
from emulator.libraries import LIBRARIES
from emulator.programs import Call
from emulator.tools import BindError, Toolset
from sandbox.engine import Finished, Paused, Step
from sandbox.errors import (
    ProgramFailed,
    SandboxBusy,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
)
from sandbox.kernel import KernelEngine
from sandbox.notebook import FileFault, Notebook
from sandbox.outputs import Output

log = structlog.get_logger()

DATA = "/mnt/data/"

NEW_SESSION = "the Python session was begun anew: variables are gone, files are still there"


@dataclass(frozen=True)
class Waiting:
    """The cell has called a client's function and waits in its kernel for the result."""

    id: str
    """``call_...``; the result must come with it."""
    call: Call
    outputs: tuple[Logs | Image, ...]
    """Of the cell up to here."""


@dataclass(frozen=True)
class Begun:
    """The container is this cell's now, and nobody else's."""

    stop: Callable[[], None]
    """For when whoever asked for the cell has gone. Callable from any thread."""


Progress = Begun | Logs | Image | Held | Waiting | Execution
"""`Begun` first, then `Held` if the cell must be approved, outputs as they come, one of the last two last."""


@dataclass(frozen=True)
class WaitingCell:
    """What is known from outside of a cell that waits."""

    container_id: str
    code: str
    call: Call
    ids: tuple[str, ...]
    """Of all calls that it has made, the last of which it waits for."""
    key: str


@dataclass
class _Cell:
    """A cell on its way."""

    key: str
    code: str
    toolset: Toolset
    transcript: Transcript = field(default_factory=Transcript)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)
    waiting: Waiting | None = None
    held: Held | None = None
    gone: bool = False
    """Nobody waits for what comes of it."""

    @property
    def id(self) -> str:
        return f"exec_{self.key}"


class _Live:
    """What one container has of this process. Used under its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opened = ExitStack()
        self.notebook: Notebook | None = None
        self.version: object = None
        """Of the container's files as they were last brought into the kernel."""
        self.seen: dict[str, tuple[int, int]] = {}
        """The kernel's files as they were last looked at: path -> size, time of change."""
        self.offered: Toolset | None = None
        self.cell: _Cell | None = None
        """The cell that waits for the result of its call."""
        self.running: _Cell | None = None

    def end(self) -> None:
        self.opened.close()
        self.notebook, self.version, self.offered, self.cell = None, None, None, None
        self.seen = {}


class Interpreter:
    """Runs cells in containers. Safe to share between threads."""

    def __init__(
        self,
        containers: Containers,
        engine: Callable[[str], KernelEngine],
        *,
        approval_seconds: float = 600.0,
        busy_seconds: float = 60.0,
    ) -> None:
        """``engine`` gives the engine for a memory limit (``1g`` ...); raises `SandboxUnavailable`."""
        self.containers = containers
        self.approvals = Approvals()
        self._engine = engine
        self._approval_seconds = approval_seconds
        self._busy_seconds = busy_seconds
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
        cell = _Cell(key or new_id(""), code, toolset or Toolset.parse([]))
        with self._using(container) as live:
            yield Begun(partial(self._stop, live, cell))
            if container.approval:
                cell.held = held = self.approvals.hold(cell.id, container.id, code)
                try:
                    if cell.gone:
                        held.decide(GONE)
                    yield held
                    decision = held.wait(self._approval_seconds)
                finally:
                    self.approvals.release(held)
                if not decision.approved:
                    yield _declined(cell, container, decision.reason)
                    return
                if decision.code is not None and decision.code != code:
                    cell.code = decision.code
                    cell.notes.append(f"the user changed the code to:\n{cell.code}\n")
            notebook = self._ready(container, live, cell)
            yield from self._drive(container, live, cell, notebook.run(cell.code))

    def waiting(self, call_id: str) -> WaitingCell | None:
        """The cell that waits for this call's result."""
        with self._lock:
            for container_id, live in self._live.items():
                cell = live.cell
                if cell and cell.waiting and cell.waiting.id == call_id:
                    return WaitingCell(
                        container_id, cell.code, cell.waiting.call, tuple(cell.ids), cell.key
                    )
        return None

    def go_on(self, container: Container, call_id: str, value: Any) -> Iterator[Progress]:
        """Give a waiting cell the result of its call; nothing at all if it waits no more."""
        with self._using(container) as live:
            cell, notebook = live.cell, live.notebook
            if cell is None or notebook is None or cell.waiting is None:
                return
            if cell.waiting.id != call_id:
                return
            cell.gone = False
            yield Begun(partial(self._stop, live, cell))
            if cell.gone:
                yield _declined(cell, container, GONE.reason)  # and it waits on
                return
            live.cell = None
            yield from self._drive(container, live, cell, notebook.run_on(value))

    def libraries(self, container: Container) -> dict[str, str]:
        """What can be imported in a container's kernel, of what people expect there -> its version."""
        if self._libraries is None:
            with self._using(container) as live:
                self._libraries = self._open(container, live).libraries(LIBRARIES)
        return self._libraries

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
        with self._lock:
            live = self._live.setdefault(container.id, _Live())
        if not live.lock.acquire(timeout=self._busy_seconds):
            raise ExecutionFailed(
                f"The container {container.id!r} is busy with other code.",
                code="container_busy",
                headers={"retry-after": "1"},
            )
        try:
            self.containers.touch(container.id)
            yield live
        except SandboxBusy as error:
            raise ExecutionFailed(
                f"The code could not be run now: {error}", code="overloaded",
                headers={"retry-after": "1"},
            ) from error  # fmt: skip
        except SandboxError as error:
            live.end()
            raise ExecutionFailed(f"The code could not be run: {error}") from error
        finally:
            live.lock.release()

    def _stop(self, live: _Live, cell: _Cell) -> None:
        cell.gone = True
        if cell.held is not None:
            cell.held.decide(GONE)
        # Not what others run in the container, before this cell's turn or after it.
        if live.running is cell and live.notebook is not None:
            live.notebook.interrupt()

    def _ready(self, container: Container, live: _Live, cell: _Cell) -> Notebook:
        """The container's kernel with the container's files and the cell's functions."""
        lost = live.notebook is not None and live.notebook.over
        if live.cell is not None and not lost:
            self._abandon(live)
            lost = live.notebook is None
        if lost:
            live.end()
            cell.notes.append(NEW_SESSION)
        notebook = self._open(container, live)
        self._bring_in(container, live, notebook)
        if live.offered is not cell.toolset:
            notebook.offer(cell.toolset.names, cell.toolset.preamble)
            live.offered = cell.toolset
        return notebook

    def _open(self, container: Container, live: _Live) -> Notebook:
        if live.notebook is None:
            engine = self._engine(container.memory_limit)
            live.notebook = live.opened.enter_context(engine.notebook())
        return live.notebook

    def _abandon(self, live: _Live) -> None:
        """Nobody will bring the result that a cell waits for: its call raises."""
        assert live.notebook is not None
        live.cell = None
        try:
            for _ in live.notebook.refuse("the call was given up"):
                if live.notebook.paused:
                    live.end()  # it calls again
                    return
        except SandboxError:
            return

    def _drive(
        self, container: Container, live: _Live, cell: _Cell, events: Iterator[Output | Step]
    ) -> Iterator[Progress]:
        """Outputs of a run until it waits for a client, or to its end."""
        began = time.monotonic()
        status: Status = "completed"
        result = None
        live.running = cell
        try:
            if cell.gone:
                yield _declined(cell, container, GONE.reason)
                return
            while True:
                step = yield from self._outputs(cell, events)
                if isinstance(step, Finished):
                    result = step.text
                    break
                try:
                    call = self._bound(cell, step)
                except BindError as error:
                    assert live.notebook is not None
                    problems = "; ".join(str(problem) for problem in error.problems)
                    events = live.notebook.refuse(f"{error.call}: {problems}")
                    continue
                cell.seconds += time.monotonic() - began
                cell.ids.append(new_id("call_"))
                cell.waiting = Waiting(cell.ids[-1], call, tuple(cell.transcript.outputs))
                live.cell = cell
                yield cell.waiting
                return
        except ProgramFailed as error:
            status = "failed"
            yield from cell.transcript.fail(error.traceback)
        except (SandboxTimeout, SandboxLimit, SandboxDied) as error:
            status = "failed"
            yield from cell.transcript.fail(f"{_FAULTS[type(error)]}: {error}")
        finally:
            live.running = None
        cell.seconds += time.monotonic() - began
        yield self._ended(container, live, cell, status, result)

    def _outputs(
        self, cell: _Cell, events: Iterator[Output | Step]
    ) -> Generator[Logs | Image, None, Step]:
        for event in events:
            if isinstance(event, Finished | Paused):
                return event
            yield from cell.transcript.take(event)
        raise AssertionError("a step comes last")

    def _bound(self, cell: _Cell, step: Paused) -> Call:
        """The call as its schema has it. Raises `BindError`."""
        arguments = cell.toolset.bind(step.name, step.args, step.kwargs)
        tool = cell.toolset.find(step.name)
        assert tool is not None, "bind refuses unknown tools"
        return Call(tool.name, arguments, tool.kind)

    def _ended(
        self, container: Container, live: _Live, cell: _Cell, status: Status, result: str | None
    ) -> Execution:
        assert live.notebook is not None
        files = self._pictures(container, cell)
        if live.notebook.over:
            live.end()
            cell.notes.append(NEW_SESSION)
        else:
            files += self._bring_out(container, live, cell)
            if not container.stateful:
                live.end()
        self.containers.touch(container.id)
        transcript = cell.transcript
        return Execution(
            id=cell.id,
            container_id=container.id,
            code=cell.code,
            status=status,
            stdout="".join(transcript.stdout),
            stderr="".join(transcript.stderr),
            result=result,
            displays=tuple(transcript.displays),
            files=tuple(files),
            notes=tuple(cell.notes),
            milliseconds=round(1000 * cell.seconds),
            outputs=tuple(transcript.outputs),
        )

    # Files

    def _bring_in(self, container: Container, live: _Live, notebook: Notebook) -> None:
        """Make the kernel's files those of the container, where a user has changed these."""
        version = self.containers.version(container.id)
        if live.version == version:
            return
        wanted = {
            file.path.removeprefix(DATA): file for file in self.containers.files(container.id)
        }
        for path in live.seen.keys() - wanted.keys():
            notebook.remove(path)
        for path, file in wanted.items():
            if file.source == "user" or path not in live.seen:
                try:
                    notebook.write(path, self.containers.read(container.id, file.id))
                except FileFault as error:
                    log.warning("file not brought into the sandbox", reason=str(error))
        live.seen = {file.path: (file.size, file.changed) for file in notebook.files()}
        live.version = version

    def _bring_out(self, container: Container, live: _Live, cell: _Cell) -> list[CreatedFile]:
        """Keep what the cell has written, changed or removed."""
        notebook = live.notebook
        assert notebook is not None
        seen = {file.path: (file.size, file.changed) for file in notebook.files()}
        kept = []
        for path, state in seen.items():
            if live.seen.get(path) != state:
                kept += self._keep(container, cell, path, partial(notebook.read, path, _MOST))
        held = {
            file.path.removeprefix(DATA): file.id for file in self.containers.files(container.id)
        }
        for path in live.seen.keys() - seen.keys():
            if path in held:
                self.containers.remove(container.id, held[path])
        live.seen = seen
        return kept

    def _pictures(self, container: Container, cell: _Cell) -> list[CreatedFile]:
        """What was displayed, as files: so that it can be linked to."""
        kept: list[CreatedFile] = []
        for shapes in cell.transcript.displays:
            picture = image(shapes)
            if picture is not None:
                name = f"{cell.id}-{len(kept) + 1}.{PICTURES[picture.media_type]}"
                kept += self._keep(container, cell, name, partial(bytes, picture.data))
        return kept

    def _keep(
        self, container: Container, cell: _Cell, path: str, content: Callable[[], bytes]
    ) -> list[CreatedFile]:
        try:
            file = self.containers.put_file(container.id, DATA + path, content(), "assistant")
        except (EmulatorError, FileFault) as error:
            cell.notes.append(f"{path!r} was not kept: {error}")
            return []
        return [CreatedFile(container.id, file.id, file.path, file.bytes)]


_FAULTS = {
    SandboxTimeout: "TimeoutError",
    SandboxLimit: "LimitExceeded",
    SandboxDied: "KernelDied",
}

_MOST = 2**30
"""A file in a sandbox cannot be larger than its data folder; this only bounds what a liar sends."""


def _declined(cell: _Cell, container: Container, reason: str) -> Execution:
    text = f"The user declined to run this code{f': {reason}' if reason else '.'}\n"
    return Execution(
        cell.id, container.id, cell.code, "declined", stderr=text, outputs=(Logs(text),)
    )
