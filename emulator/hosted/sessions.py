"""The open sessions with MCP servers, of one process. Safe to share between threads.

An event loop in its own thread runs them; it starts with the first use, so after a worker has forked. A
session belongs to one address, which includes the credentials, and to one client: clients share none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from emulator.core.events import HostedError
from emulator.hosted.address import (
    NeverSent,
    RateLimited,
    ResultLost,
    ServerAddress,
    ServerFailed,
    SessionUnknown,
    TaskCancelled,
)
from emulator.hosted.elicitation import Ask
from emulator.hosted.hosted_tool import AwaitedTask, HostedResult, Outcome
from emulator.hosted.listing import ListedTool, Listing

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from emulator.hosted.session import ServerSession

MAX_SESSIONS = 256
"""Beyond this number, the session that is unused for the longest time ends."""

T = TypeVar("T")


class Sessions:
    """Opens sessions as they are needed, again after they have ended."""

    def __init__(self, ask: Ask | None = None) -> None:
        """``ask`` puts the questions of servers to people; None if nobody can be asked."""
        self._ask = ask
        self._lock = threading.Lock()
        self._loop: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[tuple[ServerAddress, str], ServerSession] = {}

    def tools(self, address: ServerAddress, client: str) -> Future[Listing]:
        """List the tools of a server. The future raises `ServerFailed`."""
        return self.start(self._tools, address, client)

    def call(
        self,
        address: ServerAddress,
        client: str,
        label: str,
        tool: ListedTool,
        arguments: dict[str, Any],
    ) -> Future[HostedResult]:
        """Call a tool of the server that the client knows as ``label``. The future never raises."""
        return self.start(self.make_call, address, client, label, tool, arguments)

    def resume(
        self,
        address: ServerAddress,
        client: str,
        label: str,
        tool: ListedTool,
        task: AwaitedTask,
    ) -> Future[HostedResult]:
        """The result of a call that was answered with a task. The future never raises."""
        return self.start(self.task_result, address, client, label, tool, task)

    def close(self) -> None:
        """End all calls and sessions."""
        with self._lock:
            portal, loop = self._portal, self._loop
            self._portal = self._loop = None
        if portal is not None and loop is not None:
            portal.call(self._end_sessions)
            portal.call(portal.stop, True)
            loop.__exit__(None, None, None)

    def start(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> Future[T]:
        """Run a coroutine in the event loop. Cancelling the future cancels it."""
        with self._lock:
            if self._portal is None:
                from anyio.from_thread import start_blocking_portal

                # Their records contain addresses, messages and results.
                for name in ("mcp", "httpx2", "client"):
                    logging.getLogger(name).setLevel(logging.CRITICAL + 1)
                self._loop = start_blocking_portal(name="mcp")
                self._portal = self._loop.__enter__()
            return self._portal.start_task_soon(function, *arguments)

    async def _end_sessions(self) -> None:
        """A session that is being opened survives the one cancellation that the end of an event loop is."""
        for session in self._open.values():
            session.end()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _tools(self, address: ServerAddress, client: str) -> Listing:
        session = await self._session(address, client)
        return await session.tools()

    async def make_call(
        self,
        address: ServerAddress,
        client: str,
        label: str,
        tool: ListedTool,
        arguments: dict[str, Any],
    ) -> HostedResult:
        """As `call`, in the event loop (`start`)."""
        from emulator.hosted.results import hosted_result
        from emulator.hosted.tasks import TaskCreated

        async def call() -> HostedResult:
            try:
                session = await self._session(address, client)
            except ServerFailed as error:
                raise NeverSent(str(error)) from error
            result = await session.call(tool["name"], arguments)
            return hosted_result(result, tool.get("output_schema"))

        try:
            with suppress(SessionUnknown):
                return await call()
            return await call()
        except TaskCreated as created:
            return HostedResult("", outcome="unknown", task=f"{address.digest} {created.id}")
        except ServerFailed as error:
            return _failed(label, error)

    async def task_result(
        self,
        address: ServerAddress,
        client: str,
        label: str,
        tool: ListedTool,
        task: AwaitedTask,
    ) -> HostedResult:
        """As `resume`, in the event loop (`start`)."""
        from emulator.hosted.results import hosted_result

        server, _, id_ = task.id.partition(" ")
        try:
            if server != address.digest:
                raise ResultLost("another server has its task")
            try:
                session = await self._session(address, client)
            except ServerFailed as error:
                raise ResultLost(str(error)) from error
            result = await session.task_result(replace(task, id=id_))
            return hosted_result(result, tool.get("output_schema"))
        except ServerFailed as error:
            return _failed(label, error)

    async def _session(self, address: ServerAddress, client: str) -> ServerSession:
        """Return an open session. Raises `ServerFailed`."""
        from emulator.hosted.session import ServerSession

        key = (address, str(client))
        session = self._open.get(key)
        if session is None or session.has_ended:
            self._open = {k: one for k, one in self._open.items() if not one.has_ended}
            if len(self._open) >= MAX_SESSIONS:
                oldest = min(self._open, key=lambda k: self._open[k].idle_since)
                self._open.pop(oldest).end()
            ask = None if self._ask is None else partial(self._ask, client)
            session = self._open[key] = ServerSession(address, ask)
            # In a context of its own: that of the request would keep the request's objects alive.
            task = asyncio.create_task(session.run(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await session.opened()
        return session


def _failed(label: str, error: ServerFailed) -> HostedResult:
    lost: Outcome = "unknown" if isinstance(error, ResultLost) else "known"
    outcome: Outcome = "not made" if isinstance(error, NeverSent | TaskCancelled) else lost
    is_limited = any(isinstance(one, RateLimited) for one in (error, error.__cause__))
    code: HostedError = "too_many_requests" if is_limited else ""
    message = f"MCP server {label!r} failed: {error}."
    return HostedResult(message, is_error=True, outcome=outcome, error_code=code)
