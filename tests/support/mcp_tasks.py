"""An MCP server that makes its calls as tasks (SEP-2663), as a process of its own on HTTP: `http` starts it.

Its tools ``pay``, and ``look``, which only reads, have the argument ``how``: a number of seconds, after which
the task is completed ("20, 1": the first, and each later one), one of `ENDS`, or of the forms of
`mcp_asking`. The log tells what it was asked, and what was made.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server

from tests.support import mcp_asking, mcp_faults
from tests.support.mcp_faults import log
from tests.support.tools import strings

Json = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
DONE: Json = {
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "pay is done"}]},
}
ENDS: dict[str, Json] = {
    "fail": {"status": "failed", "error": {"code": -32603, "message": "no money left"}},
    "refuse": {
        "status": "completed",
        "result": {"content": [{"type": "text", "text": "no such bill"}], "isError": True},
    },
    "cancel": {"status": "cancelled"},
    "nonsense": {"status": "asleep"},
    "no result": {"status": "completed"},
    "forget": {"status": "working"},
    "stay busy": {"status": "working"},
    "be another": {"taskId": "another", **DONE},
    "be of no known type": {"resultType": "weird", **DONE},
    "have no known result": {
        "status": "completed",
        "result": {"resultType": "weird", "content": []},
    },
    "go on": {"status": "working"},
    "end anyway": {"status": "working"},
    "start late": DONE,
    "answer": DONE,
}
"""A task that has to ``go on`` or ``end anyway`` does so when it is cancelled. ``answer`` is no task: a
result of an unknown type."""


@dataclass
class Task:
    id: str
    tool: str
    how: str
    seconds: float = 0
    began: float = field(default_factory=time.monotonic)
    answer: str = ""
    is_cancelled: bool = False
    polls: int = 0

    @property
    def state(self) -> Json:
        if self.is_cancelled and self.how != "go on":
            return DONE if self.how == "end anyway" else {"status": "cancelled"}
        if self.how in ENDS:
            return ENDS[self.how]
        if self.how in mcp_asking.FORMS and not self.answer:
            request = {"method": "elicitation/create", "params": mcp_asking.question(self.how)}
            return {"status": "input_required", "inputRequests": {"q": request}}
        if not self.answer and time.monotonic() < self.began + self.seconds:
            return {"status": "working"}
        text = f"{self.tool} is done{self.answer}"
        return {"status": "completed", "result": {"content": [{"type": "text", "text": text}]}}

    def make(self) -> None:
        if not self.is_cancelled:
            log(f"made {self.id}")


tasks: dict[str, Task] = {}


def shown(task: Task) -> Json:
    now = "2026-07-28T00:00:00Z"
    times = {"createdAt": now, "lastUpdatedAt": now, "ttlMs": None, "pollIntervalMs": 200}
    return {"taskId": task.id, **times, **task.state}


class Params(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    schema = strings("how")
    reads = types.ToolAnnotations(read_only_hint=True)
    tools = [
        types.Tool(name="pay", input_schema=schema),
        types.Tool(name="look", input_schema=schema, annotations=reads),
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Any, params: Any) -> Any:
    declared = context.meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert EXTENSION in declared
    how = params.arguments["how"]
    task = Task(secrets.token_hex(8), params.name, how)
    if how not in ENDS and how not in mcp_asking.FORMS:
        durations = [float(one) for one in how.split(", ")]
        task.seconds = durations[-1 if any(one.how == how for one in tasks.values()) else 0]
        threading.Timer(task.seconds, task.make).start()
    tasks[task.id] = task
    log(f"{params.name} {params.arguments} is {task.id}")
    if how == "answer":
        return {"resultType": "weird", "content": [{"type": "text", "text": "pay is done"}]}
    if how == "start late":
        await anyio.sleep(2)
    if task.how == "forget":
        del tasks[task.id]
    return {**shown(task), "resultType": "task", "taskId": task.id, "status": "working"}


def found(context: Any, params: Params) -> Task:
    assert context.request.headers["mcp-name"] == params.task_id
    if params.task_id not in tasks:
        raise MCPError(code=types.INVALID_PARAMS, message="Task not found")
    return tasks[params.task_id]


async def get(context: Any, params: Params) -> Json:
    log(f"get {params.task_id}")
    task = found(context, params)
    task.polls += 1
    if task.how == "stay busy" or (task.how == "2" and task.polls == 1):
        raise MCPError(code=types.INTERNAL_ERROR, message="busy")
    return shown(task)


async def update(context: Any, params: Params) -> Json:
    task = found(context, params)
    answer = (params.input_responses or {})["q"]
    log(f"update {answer}")
    task.answer = f", {answer['action']}"
    return {}


async def cancel(context: Any, params: Params) -> Json:
    found(context, params).is_cancelled = True
    log(f"cancel {params.task_id}")
    return {}


server = Server("tasks", on_list_tools=list_tools, on_call_tool=call_tool)
server.extensions[EXTENSION] = {}
for name, handler in {"get": get, "update": update, "cancel": cancel}.items():
    server.add_request_handler(f"tasks/{name}", Params, handler)


def http(folder: Path) -> AbstractContextManager[str]:
    """The URL of the server; ``folder``/log tells what it was asked."""
    return mcp_faults.http(folder, file=__file__)


if __name__ == "__main__":
    mcp_faults.serve_http(Path(sys.argv[-1]), server)
