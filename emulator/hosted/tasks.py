"""The Tasks extension of MCP (SEP-2663): a server may answer a call with a task, whose result is asked for
until it is there.

    call ──► its result
      └────► a task ── get ──► working ──► get ...
                         ├───► input_required: a person is asked each question once ── update ──► get ...
                         ├───► completed: the result of the call
                         ├───► failed: the server has rejected the call
                         └───► cancelled, or no longer known: nobody knows what was made

    the answer ends, or the call's time ──► cancel, once ──► get, for a moment
                         ├───► completed, failed: as above
                         ├───► cancelled: the call was not made
                         └───► still working: nobody knows what will be made

The server alone chooses the id. Any process may get a task, any number of times: that is a read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal, NoReturn

import anyio
from mcp import MCPError
from mcp.client import ClaimContext, Client, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    ErrorData,
    InputRequest,
    InputResponses,
    Request,
    RequestParams,
    Result,
)
from pydantic import Field

from emulator.hosted.address import ResultLost, TaskCancelled
from emulator.hosted.elicitation import Refused
from emulator.hosted.hosted_tool import AwaitedTask

_POLL_SECONDS = (0.1, 10.0)
"""The shortest and the longest pause, whatever the server suggests."""
_DEFAULT_MS = 1000
_MAX_FAILURES = 3
"""Polls that may fail one after the other."""
_CANCEL_SECONDS = 1
"""How long a task that is cancelled has to end."""


class TaskCreated(Exception):
    """The server makes the call as the task ``id``."""

    def __init__(self, id_: str) -> None:
        super().__init__(id_)
        self.id = id_


class _CreatedTask(Result):
    result_type: Literal["task"]
    task_id: Annotated[str, Field(min_length=1, max_length=1024)]


async def _raise_created(created: _CreatedTask, _: ClaimContext) -> NoReturn:
    raise TaskCreated(created.task_id)


class TasksExtension(ClientExtension):
    """Declares that calls may be answered with tasks: `call_tool` raises `TaskCreated`."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=_CreatedTask, resolve=_raise_created),)


_OPEN = ("working", "input_required")


class Task(Result):
    """What the server says of a task."""

    result_type: Literal["complete"] = "complete"
    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    poll_interval_ms: float | None = None
    input_requests: dict[str, InputRequest] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    error: ErrorData | None = None


class _Params(RequestParams):
    task_id: str


class _Answers(_Params):
    input_responses: InputResponses


class _Get(Request[_Params, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class _Update(Request[_Answers, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class _Cancel(Request[_Params, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


async def ended_task(
    client: Client, awaited: AwaitedTask, seconds: float, most_questions: int
) -> Task:
    """The task, as soon as it has ended. The time of people who are asked does not count. It is cancelled
    after ``seconds``, when its answer ends before, and when it asks what nobody is asked.

    Raises `TaskCancelled`, `ResultLost`, and what the client raises.
    """
    seconds = min(seconds, max(0.0, awaited.until - time.monotonic()))
    reason = ""
    with _cancelled_with(awaited.left) as scope:
        try:
            return await _polled(client, awaited.id, scope, seconds, most_questions)
        except Refused as error:
            reason = str(error)
    if not reason:
        late = f"its task did not end within {seconds:g} s"
        reason = "its task was cancelled with the answer" if awaited.left.done() else late
    ended = await _cancelled(client, awaited.id)
    if ended is None:
        raise ResultLost(reason)
    if ended.status == "cancelled":
        raise TaskCancelled(reason)
    return ended


@contextmanager
def _cancelled_with(left: Future[None]) -> Iterator[anyio.CancelScope]:
    """A scope that ends when ``left`` is done, in any thread."""
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as scope:

        def cancel(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(scope.cancel)

        left.add_done_callback(cancel)
        yield scope


async def _polled(
    client: Client, id_: str, scope: anyio.CancelScope, seconds: float, most_questions: int
) -> Task:
    answered: set[str] = set()
    failures = 0
    scope.deadline = anyio.current_time() + seconds
    while True:
        try:
            task = await _found(client, id_)
        except MCPError as error:
            failures += 1
            if error.code == INVALID_PARAMS or failures > _MAX_FAILURES:
                raise
            await anyio.sleep(_DEFAULT_MS / 1000)
            continue
        failures = 0
        if task.status not in _OPEN:
            return task
        questions = {k: one for k, one in task.input_requests.items() if k not in answered}
        if questions:
            answered.update(questions)
            if len(answered) > most_questions:
                raise Refused(f"it asks more than {most_questions} questions")
            scope.deadline = math.inf
            answers = {key: await _answer(client, key, one) for key, one in questions.items()}
            scope.deadline = anyio.current_time() + seconds
            update = _Update(params=_Answers(task_id=id_, input_responses=answers))
            await client.session.send_request(update, EmptyResult)
        await anyio.sleep(_pause(task))


async def _cancelled(client: Client, id_: str) -> Task | None:
    """Cancel a task. Returns how it ended; None if it has not ended soon."""
    with anyio.move_on_after(_CANCEL_SECONDS):
        with suppress(MCPError):  # it has ended already, or the server cannot cancel
            await client.session.send_request(_Cancel(params=_Params(task_id=id_)), EmptyResult)
        while (task := await _found(client, id_)).status in _OPEN:  # noqa: ASYNC110
            await anyio.sleep(_POLL_SECONDS[0])
        return task
    return None


async def _found(client: Client, id_: str) -> Task:
    """Raises `ResultLost` for another task than the one that was asked for."""
    task = await client.session.send_request(_Get(params=_Params(task_id=id_)), Task)
    if task.task_id != id_:
        raise ResultLost("it answered with another task")
    return task


async def _answer(client: Client, key: str, request: InputRequest) -> Any:
    context = ClientRequestContext(session=client.session, request_id=key)
    answer = await client.session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise Refused(answer.message)
    return answer


def _pause(task: Task) -> float:
    suggested = _DEFAULT_MS if task.poll_interval_ms is None else task.poll_interval_ms
    return min(max(suggested / 1000, _POLL_SECONDS[0]), _POLL_SECONDS[1])
