"""`/containers/{id}/execute`, and executions that wait for approval. Not part of OpenAI's API.

``POST execute {"code": ...}`` answers as Azure's dynamic sessions do; with ``"stream": true`` the output is
sent as events while the code runs. In a container with ``approval`` every execution waits until
``POST executions/{id}/approve`` (``{"code": ...}`` replaces the code) or ``.../decline``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from flask import Blueprint, Response
from pydantic import BaseModel, ConfigDict, Field

from emulator import traces
from emulator.core.events import CodeFinished, Image, Logs, RunStatus, UpstreamAccepted
from emulator.interpreter.execution import Execution
from emulator.interpreter.interpreter import Interpreter, Progress
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval
from emulator.settings.settings import Settings
from emulator.storage.container_rows import Container
from emulator.traces import Trace
from emulator.web.routes.replies import body_as, client, json_reply, stream_reply
from emulator.web.routes.streaming import EventStream

MAX_CODE = 1024 * 1024


class ExecuteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: str = Field(max_length=MAX_CODE)
    stream: bool = False


class Approval(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: str | None = Field(None, max_length=MAX_CODE)


class Refusal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=10_000)


def add_routes(
    api: Blueprint, interpreter: Interpreter, settings: Settings, record: Callable[[], None]
) -> None:
    """``record`` records the current request."""
    containers = interpreter.containers

    @api.post("/containers/<container_id>/execute")
    def execute(container_id: str) -> Response:
        record()
        body = body_as(ExecuteRequest)
        container = containers.get(client(), container_id)
        steps = run_cell(interpreter, container, body.code, streamed=body.stream)
        if body.stream:
            stream = EventStream(_events(steps), settings.ping_seconds)
            stream.first()  # a quick error keeps its own status
            return stream_reply(stream)
        return json_reply(last_execution(steps).report())

    @api.get("/containers/<container_id>/executions")
    def list_pending_cells(container_id: str) -> Response:
        container = containers.get(client(), container_id)
        cells = [_cell_json(one) for one in interpreter.pending_cells(container.id)]
        return json_reply({"object": "list", "data": cells, "has_more": False})

    @api.post("/containers/<container_id>/executions/<execution_id>/approve")
    def approve(container_id: str, execution_id: str) -> Response:
        body = body_as(Approval, b"{}")
        decision = ApprovalDecision(approved=True, code=body.code)
        return decided(container_id, execution_id, decision)

    @api.post("/containers/<container_id>/executions/<execution_id>/decline")
    def decline(container_id: str, execution_id: str) -> Response:
        body = body_as(Refusal, b"{}")
        decision = ApprovalDecision(approved=False, reason=body.reason)
        return decided(container_id, execution_id, decision)

    def decided(container_id: str, execution_id: str, decision: ApprovalDecision) -> Response:
        container = containers.get(client(), container_id)
        cell = interpreter.decide(container.id, execution_id, decision)
        status = "approved" if decision.approved else "declined"
        return json_reply({**_cell_json(cell), "status": status})


def run_cell(
    interpreter: Interpreter,
    container: Container,
    code: str,
    key: str = "",
    *,
    streamed: bool = False,
) -> Iterator[Progress]:
    """Run a cell for the current request, and record it in the request's trace; see `Interpreter.run`."""
    if (trace := traces.current.get()) is not None:
        trace.container, trace.cell, trace.streamed = container.id, code, streamed
    # The context is read here: another thread, with another context, may read the steps.
    timed = traces.record_time("sandbox cell")
    return _recorded(interpreter.run(container, code, key=key), trace, timed)


def last_execution(steps: Iterator[Progress]) -> Execution:
    for step in steps:
        if isinstance(step, Execution):
            return step
    raise AssertionError("an execution comes last")


def _recorded(
    steps: Iterator[Progress], trace: Trace | None, timed: AbstractContextManager[None]
) -> Iterator[Progress]:
    with timed:
        for step in steps:
            if trace is not None:
                _record(trace, step)
            yield step


def _events(steps: Iterator[Progress]) -> Iterator[dict[str, Any] | UpstreamAccepted]:
    yield UpstreamAccepted()
    for step in steps:
        if (event := _event(step)) is not None:
            yield event


def _event(step: Progress) -> dict[str, Any] | None:
    match step:
        case PendingApproval():
            return {"type": "held", "execution": _cell_json(step)}
        case Logs(text):
            return {"type": "logs", "text": text}
        case Image(media_type, data):
            url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
            return {"type": "image", "url": url}
        case Execution():
            return {"type": "execution", "execution": step.report()}
    return None


def _record(trace: Trace, step: Progress) -> None:
    if trace.first_output is None:
        trace.first_output = trace.now()
    if isinstance(step, Execution):
        status: RunStatus = "completed" if step.status == "completed" else "failed"
        trace.cells.append(CodeFinished(status, step.outputs, step.files))


def _cell_json(cell: PendingApproval) -> dict[str, Any]:
    return {
        "id": cell.id,
        "object": "container.execution",
        "container_id": cell.owner,
        "status": "held",
        "code": cell.code,
        "created_at": int(cell.since),
    }
