"""A cell on its way: what it puts out, the calls it makes, how it ends. Knows nothing of containers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

from emulator.events import CreatedFile, Image, Logs, new_id
from emulator.interpreter.execution import Execution, Status, Transcript
from emulator.interpreter.pending_cell import PendingCell
from emulator.programs.order import PendingCalls
from emulator.programs.program import Call
from emulator.settings import Order
from emulator.tools.toolset import BindError, Toolset
from sandbox.engine import Finished, Paused, Step
from sandbox.errors import ProgramFailed, SandboxDied, SandboxLimit, SandboxTimeout
from sandbox.kernel.notebook import Notebook
from sandbox.outputs import Output

_FAULTS = {
    SandboxTimeout: "TimeoutError",
    SandboxLimit: "LimitExceeded",
    SandboxDied: "KernelDied",
}
"""What a cell is said to have raised where the sandbox ended it."""

Steps = Iterator[Output | Step]


@dataclass(frozen=True)
class CellWaiting:
    """The cell has called functions of the client and waits in its kernel for all their results."""

    calls: Mapping[str, Call]
    """By ``call_...``, with which the result must come; in the order in which the cell has them."""
    outputs: tuple[Logs | Image, ...]
    """Of the cell up to here."""


@dataclass(frozen=True)
class CellEnded:
    status: Status
    result: str | None = None


@dataclass
class RunningCell:
    """``key`` names it: ``exec_KEY`` is the id of its execution."""

    key: str
    code: str
    toolset: Toolset
    """Calls of these functions are the client's to make."""
    order: Order = "auto"
    """Which of its calls leave together."""
    transcript: Transcript = field(default_factory=Transcript)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)
    """Of the calls that it has made."""
    waiting: CellWaiting | None = None
    held: PendingCell | None = None
    """While it must be approved, and after."""
    gone: bool = False
    """Nobody waits for what comes of it."""

    @property
    def id(self) -> str:
        return f"exec_{self.key}"

    def drive(
        self, notebook: Notebook, steps: Steps
    ) -> Generator[Logs | Image, None, CellWaiting | CellEnded]:
        """Outputs as they come; returns when the cell waits for a client, or has ended."""
        began = time.monotonic()
        self.waiting = None
        try:
            return (yield from self._steps(notebook, steps))
        except ProgramFailed as error:
            yield from self.transcript.fail(error.traceback)
        except (SandboxTimeout, SandboxLimit, SandboxDied) as error:
            yield from self.transcript.fail(f"{_FAULTS[type(error)]}: {error}")
        finally:
            self.seconds += time.monotonic() - began
        return CellEnded("failed")

    def _steps(
        self, notebook: Notebook, steps: Steps
    ) -> Generator[Logs | Image, None, CellWaiting | CellEnded]:
        while True:
            step = yield from self._until_step(steps)
            if isinstance(step, Finished):
                return CellEnded("completed", step.text)
            try:
                calls = {new_id("call_"): call for call in self._leaving(step)}
            except BindError as error:
                problems = "; ".join(str(problem) for problem in error.problems)
                steps = notebook.refuse(f"{error.call}: {problems}")
                continue
            self.ids += calls
            self.waiting = CellWaiting(calls, tuple(self.transcript.outputs))
            return self.waiting

    def _until_step(self, steps: Steps) -> Generator[Logs | Image, None, Step]:
        for event in steps:
            if isinstance(event, Finished | Paused):
                return event
            yield from self.transcript.take(event)
        raise AssertionError("a step comes last")

    def _leaving(self, step: Paused) -> list[Call]:
        """The calls that the cell waits for, as many of the first as may share a message.

        Raises `BindError` for the first; another that its schema refuses is told when its turn comes.
        """
        outgoing = PendingCalls(self.order)
        calls: list[Call] = []
        for each in (step, *step.ahead):
            try:
                arguments = self.toolset.bind(each.name, each.args, each.kwargs)
            except BindError:
                if not calls:
                    raise
                break
            tool = self.toolset.find(each.name)
            assert tool is not None, "bind refuses unknown tools"
            batch = (each.batch, 0) if each.batch else None
            if not outgoing.accepts(tool, arguments, batch):
                break
            outgoing.add(tool, arguments, batch)
            calls.append(Call(tool.name, arguments, tool.kind))
        return calls

    def execution(
        self, container_id: str, ended: CellEnded, files: tuple[CreatedFile, ...]
    ) -> Execution:
        transcript = self.transcript
        return Execution(
            id=self.id,
            container_id=container_id,
            code=self.code,
            status=ended.status,
            stdout="".join(transcript.stdout),
            stderr="".join(transcript.stderr),
            result=ended.result,
            displays=tuple(transcript.displays),
            files=files,
            notes=tuple(self.notes),
            milliseconds=round(1000 * self.seconds),
            outputs=tuple(transcript.outputs),
        )
