"""One cell: what it outputs, the calls that it makes, how it ends. Knows nothing of containers.

    running ──► waiting for the results of its calls ──► running (resumed) ──► ... ──► completed or failed

A waiting cell waits inside its kernel. If its results never come, it is abandoned there
(`ContainerKernel`), or its container expires with it; it is never run a second time.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from emulator.core.events import CreatedFile, Image, Logs, cell_call_id
from emulator.interpreter.execution import Execution, Status, Transcript
from emulator.programs.order import PendingCalls
from emulator.programs.program import Call
from emulator.settings.settings import Order
from emulator.tools.toolset import BindError, Problem, Toolset
from sandbox.engine import Finished, Paused, Step
from sandbox.errors import ProgramFailed, SandboxDied, SandboxLimit, SandboxTimeout
from sandbox.kernel.notebook import Notebook
from sandbox.outputs import Output

_FAULTS = {
    SandboxTimeout: "TimeoutError",
    SandboxLimit: "LimitExceeded",
    SandboxDied: "KernelDied",
}
"""The exception that a cell shows if the sandbox ended it."""

_DIRECT_ONLY = "code cannot call it; write a block that has nothing but this call"

Steps = Iterator[Output | Step]


@dataclass(frozen=True)
class CellWaiting:
    """The cell has called functions of the client and waits in its kernel for all results."""

    calls: Mapping[str, Call]
    """By their ids (``call_...``), in the order of the cell."""
    outputs: tuple[Logs | Image, ...]
    """The cell's outputs so far."""


@dataclass(frozen=True)
class CellEnded:
    status: Status
    result: str | None = None
    value: Any = None


@dataclass
class RunningCell:
    """A cell between its first statement and its end; as JSON, another replica can resume it.

    ``exec_KEY`` is the id of its execution.
    """

    key: str
    code: str
    toolset: Annotated[
        Toolset,
        PlainSerializer(lambda toolset: [dict(tool) for tool in toolset.definitions]),
        PlainValidator(Toolset.parse),
    ]
    """The functions whose calls the client makes."""
    order: Order = "auto"
    """Which of its calls are sent together."""
    transcript: Transcript = field(default_factory=Transcript)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    ids: list[str] = field(default_factory=list)
    """The ids of all calls that it has made."""
    waiting: CellWaiting | None = None
    refused: str = ""
    """Why the cell makes no further call: the user rejected one, or the outcome of one is unknown."""

    @property
    def id(self) -> str:
        return f"exec_{self.key}"

    def drive(
        self, notebook: Notebook, steps: Steps
    ) -> Generator[Logs | Image, None, CellWaiting | CellEnded]:
        """Yields outputs as they come. Returns when the cell waits for results, or has ended."""
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
            step = yield from self._outputs_until_step(steps)
            if isinstance(step, Finished):
                return CellEnded("completed", step.text, step.value)
            if self.refused:
                steps = notebook.refuse(f"{step.name}() was not called: {self.refused}")
                continue
            try:
                new = enumerate(self._sendable_calls(step), len(self.ids))
                calls = {cell_call_id(self.key, place): call for place, call in new}
            except BindError as error:
                problems = "; ".join(str(problem) for problem in error.problems)
                steps = notebook.refuse(f"{error.call}: {problems}")
                continue
            self.ids += calls
            self.waiting = CellWaiting(calls, tuple(self.transcript.outputs))
            return self.waiting

    def _outputs_until_step(self, steps: Steps) -> Generator[Logs | Image, None, Step]:
        for event in steps:
            if isinstance(event, Finished | Paused):
                return event
            yield from self.transcript.add(event)
        raise AssertionError("a step comes last")

    def _sendable_calls(self, step: Paused) -> list[Call]:
        """The calls that the cell waits for: as many of the first ones as may share a message.

        Raises `BindError` for the first call. A later one with invalid arguments is refused when it is
        first.
        """
        outgoing = PendingCalls(self.order)
        calls: list[Call] = []
        for each in (step, *step.pending):
            try:
                arguments = self.toolset.bind(each.name, each.args, each.kwargs)
                tool = self.toolset.find(each.name)
                assert tool is not None, "bind refuses unknown tools"
                if tool.is_direct_only:
                    raise BindError(f"{each.name}()", [Problem("", _DIRECT_ONLY)])
            except BindError:
                if not calls:
                    raise
                break
            if not outgoing.accepts(tool, arguments, each.batch):
                break
            outgoing.add(tool, arguments, each.batch)
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
            value=ended.value,
            displays=tuple(transcript.displays),
            files=files,
            notes=tuple(self.notes),
            milliseconds=round(1000 * self.seconds),
            outputs=tuple(transcript.outputs),
        )
