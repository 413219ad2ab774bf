"""The Tasks extension of MCP (SEP-2663): a server may answer a call with a task, whose result is asked for
until it is there.

    call ──► its result
      └────► a task ── get ──► working ──► get ...
                         ├───► input_required: a person is asked each question once ── update ──► get ...
                         ├───► completed: the result of the call
                         ├───► failed: the server has rejected the call
                         └───► cancelled, or no longer known: nobody knows what was made

The server alone chooses the id. Any process may get a task, any number of times: that is a read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

from emulator.hosted.elicitation import Refused

_POLL_SECONDS = (0.1, 10.0)
"""The shortest and the longest pause, whatever the server suggests."""
_DEFAULT_MS = 1000
_MAX_FAILURES = 3
"""Polls that may fail one after the other."""


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


class Task(Result):
    """What the server says of a task."""

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


async def ended_task(client: Client, id_: str, seconds: float, most_questions: int) -> Task:
    """The task, as soon as it has ended. The time of people who are asked does not count.

    Raises `TimeoutError`, `Refused` for a question that nobody is asked, and what the client raises.
    """
    answered: set[str] = set()
    failures = 0
    with anyio.fail_after(seconds) as scope:
        while True:
            try:
                task = await client.session.send_request(_Get(params=_Params(task_id=id_)), Task)
            except MCPError as error:
                failures += 1
                if error.code == INVALID_PARAMS or failures > _MAX_FAILURES:
                    raise
                await anyio.sleep(_DEFAULT_MS / 1000)
                continue
            failures = 0
            if task.status not in ("working", "input_required"):
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


async def _answer(client: Client, key: str, request: InputRequest) -> Any:
    context = ClientRequestContext(session=client.session, request_id=key)
    answer = await client.session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise Refused(answer.message)
    return answer


def _pause(task: Task) -> float:
    suggested = _DEFAULT_MS if task.poll_interval_ms is None else task.poll_interval_ms
    return min(max(suggested / 1000, _POLL_SECONDS[0]), _POLL_SECONDS[1])


async def cancel_task(client: Client, id_: str) -> None:
    await client.session.send_request(_Cancel(params=_Params(task_id=id_)), EmptyResult)
