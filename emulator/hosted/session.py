"""One session with an MCP server: open, list, call, close. Runs in the event loop of `sessions`.

States: *opening* -> *open* -> *ended*. One task, `run`, enters and leaves the SDK's client, as its cancel
scopes require; other tasks use the client only while the session is open. A session ends

* after `IDLE_SECONDS` without a call or a listing;
* when its transport ends: a process that exits, an unreachable host, a server that no longer knows it;
* when `end` is called.

What may never happen: a call is sent twice, except after a server has rejected it for an unknown session.
Everything that a server sends is bounded here: the size of a reply, the time of each step, the tools.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from http.client import TOO_MANY_REQUESTS
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
import structlog
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
)
from mcp_types import ToolListChangedNotification as ToolListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import SecretStr, ValidationError

from emulator.hosted.address import (
    NeverSent,
    RateLimited,
    ResultLost,
    ServerAddress,
    ServerFailed,
    ServerRefused,
    SessionUnknown,
    TaskCancelled,
)
from emulator.hosted.changes import follow_changes
from emulator.hosted.elicitation import Form, Refused, form_of
from emulator.hosted.hosted_tool import AwaitedTask
from emulator.hosted.listing import Listing
from emulator.hosted.stored_login import LoginAuth
from emulator.hosted.tasks import TaskCreated, TasksExtension, ended_task
from emulator.hosted.transport import (
    MAX_REPLY_BYTES,
    BoundedBody,
    NotingTransport,
    unsent_calls,
    watched,
)

if TYPE_CHECKING:
    from mcp_types import ListToolsResult, Tool

log = structlog.get_logger()

R = TypeVar("R", CallToolResult, "ListToolsResult")

CONNECT_SECONDS = 10
START_SECONDS = 60
"""How long a command may take to answer: npx and uvx install it first."""
LIST_SECONDS = 30
LIST_AGE_SECONDS = 300
"""How long a list is used, unless the server reports a change."""
_LISTEN_SECONDS = 2
"""How long a session waits for the stream of changes before its first listing."""
IDLE_SECONDS = 300
CONCURRENT_CALLS = 16
"""Calls of one session at the same time; further calls wait."""
MAX_LISTED = 1000
MAX_QUESTIONS = 5
"""That a server may ask during one call, one after the other, and in a session at the same time."""
_LOST = (CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT)
"""The codes of errors that the SDK itself makes of a call that has no answer."""
_MAX_DETAIL = 500
_MAX_STDERR = 64 * 1024
_ERROR = re.compile(r"\b(?:[a-z]*error|fatal|panic)\b|\berr!", re.IGNORECASE)
_NETWORK_VARIABLES = frozenset(
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY".split()
)


class ServerSession:
    """A session with the server at ``address``."""

    def __init__(
        self,
        address: ServerAddress,
        ask: Callable[[Form], Future[dict[str, Any] | None]] | None = None,
    ) -> None:
        """``ask`` asks the session's client (`elicitation.Ask`)."""
        self._address = address
        self._ask = ask
        self._forms = 0
        """The number of forms that wait for a person."""
        self._login = LoginAuth(address.login, address.url) if address.login else None
        self._ready = anyio.Event()
        self._ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._calls = anyio.CapacityLimiter(CONCURRENT_CALLS)
        self._lists = anyio.Lock()
        self._client: Client | None = None
        self._users = 0
        self._last_use = time.monotonic()
        self._listing: Listing | None = None
        self._listed_at = 0.0
        self._changes = 0
        """The number of changes of its tools that the server reported."""
        self._status = 0
        """The HTTP status of the last reply that was an error."""
        self._problem = ""

    @property
    def has_ended(self) -> bool:
        return self._scope.cancel_called or self._ended.is_set()

    @property
    def idle_since(self) -> float:
        """Monotonic time; infinite while the session is used."""
        return float("inf") if self._users else self._last_use

    def end(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        """Open the session, keep it open until it ends, and close it."""
        with TemporaryFile("w+", errors="replace") as stderr:
            try:
                with self._scope:
                    async with AsyncExitStack() as stack:
                        await self._open(stack, stderr)
                        self._ready.set()
                        await self._wait_until_idle()
            except Exception as error:  # noqa: BLE001 - a server or its transport may fail in any way
                self._problem = self._detail(error)
            finally:
                if self._client is None:  # a command that cannot start says why
                    stderr.seek(0)
                    reason = _reason(stderr.read(_MAX_STDERR))
                    self._problem = self._address.without_secrets(reason) or self._problem
                self._scope.cancel()
                self._ended.set()
                self._ready.set()

    async def opened(self) -> None:
        """Wait until the session is open. Raises `ServerFailed`."""
        seconds = CONNECT_SECONDS if self._address.url else START_SECONDS
        with anyio.move_on_after(seconds):
            await self._ready.wait()
        if self._client is None:
            self.end()
            late = f"it did not answer within {seconds} s"
            raise self._refusal() or ServerFailed(self._problem or late)

    async def tools(self) -> Listing:
        """Return the server's tools, from the last listing if it is still valid. Raises `ServerFailed`."""
        async with self._in_use(), self._lists:
            if self._listing is None or time.monotonic() > self._listed_at + LIST_AGE_SECONDS:
                changes, self._listing = self._changes, None
                listing = await self._list()
                if changes == self._changes:
                    self._listing, self._listed_at = listing, time.monotonic()
                return listing
            return self._listing

    async def _list(self) -> Listing:
        listed: list[Tool] = []
        cursor, seen = "", set[str]()
        try:
            with anyio.fail_after(LIST_SECONDS):
                while len(listed) < MAX_LISTED and cursor not in seen:
                    seen.add(cursor)
                    page = _complete(await self._open_client().list_tools(cursor=cursor or None))
                    listed += page.tools
                    cursor = page.next_cursor or ""
        except TimeoutError:
            raise ServerFailed(f"it did not list its tools within {LIST_SECONDS} s") from None
        except Exception as error:
            raise await self._failure(error) from error
        listing = Listing([_listed(tool) for tool in listed])
        for problem in await anyio.to_thread.run_sync(lambda: listing.problems):
            log.warning("MCP tool left out", server=str(self._address), reason=problem)
        return listing

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Cancelling the call cancels it at the server.

        Raises `TaskCreated`, `NeverSent`, `ResultLost`, or another `ServerFailed` if the server has rejected
        the call.
        """
        async with self._in_use(), self._calls:
            try:
                client = self._open_client()
            except ServerFailed as error:
                raise NeverSent(str(error)) from error
            errors: list[Exception] = []
            unsent_calls.set(errors)
            try:
                return _complete(await client.call_tool(name, arguments, self._address.timeout))
            except TaskCreated:
                raise
            except Exception as error:
                failure = await self._failure(error)
                if errors:
                    raise NeverSent(str(failure)) from error
                raise (
                    failure if self._was_rejected(error) else ResultLost(str(failure))
                ) from error

    async def task_result(self, task: AwaitedTask) -> CallToolResult:
        """The result of a call that the server makes as a task, which is cancelled with its answer.

        Raises `TaskCancelled`, `ResultLost`, or another `ServerFailed` if the server has rejected the call.
        """
        async with self._in_use(), self._calls:
            try:
                seconds = self._address.timeout
                ended = await ended_task(self._open_client(), task, seconds, MAX_QUESTIONS)
                if ended.status == "completed":
                    return _complete(CallToolResult.model_validate(ended.result))
            except TaskCancelled:
                raise
            except Exception as error:
                raise ResultLost(str(await self._failure(error))) from error
        if ended.status == "failed" and ended.error is not None:
            raise ServerFailed(self._detail(MCPError.from_error_data(ended.error)))
        raise ResultLost(f"its task has {ended.status}")

    def _was_rejected(self, error: Exception) -> bool:
        """Return True if the server itself has answered that the call failed."""
        if not isinstance(error, MCPError) or error.code in _LOST:
            return False
        # The SDK reports a reply that is no JSON-RPC message as an invalid request.
        return self._status < 500 and (error.code != INVALID_REQUEST or self._status > 0)

    def _open_client(self) -> Client:
        if self._client is None or self.has_ended:
            raise ServerFailed(self._problem or "the connection was closed")
        return self._client

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._last_use = time.monotonic()

    async def _open(self, stack: AsyncExitStack, stderr: Any) -> None:
        address = self._address
        if address.url:
            http = httpx2.AsyncClient(
                headers=[*address.headers, ("Accept-Encoding", "identity")],
                timeout=httpx2.Timeout(CONNECT_SECONDS, read=address.timeout + LIST_SECONDS),
                event_hooks={"response": [self._examine]},
                transport=NotingTransport(),
                auth=self._login,
                trust_env=False,
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(
                address.url, http_client=http, max_sse_event_size=MAX_REPLY_BYTES
            )
        else:
            parameters = StdioServerParameters(
                command=address.command,
                args=[
                    one.get_secret_value() if isinstance(one, SecretStr) else one
                    for one in address.args
                ],
                env={**_network_variables(), **dict(address.env)},
            )
            transport = stdio_client(parameters, errlog=stderr)
        client = Client(
            watched(transport, self._note_end),
            message_handler=self._note_change,
            elicitation_callback=self._elicit,
            input_required_max_rounds=MAX_QUESTIONS,
            extensions=[TasksExtension()],
            cache=None,
        )
        await stack.enter_async_context(client)
        # The SDK's own check runs the server's regular expressions, in the event loop of all sessions and
        # without an end; `results` checks instead.
        client.session.validate_tool_result = _no_check  # type: ignore[method-assign]
        tools = client.server_capabilities.tools
        if (
            client.protocol_version in MODERN_PROTOCOL_VERSIONS
            and tools is not None
            and tools.list_changed
        ):
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            asked = anyio.Event()
            group.start_soon(follow_changes, client, self._forget_list, asked)
            with anyio.move_on_after(_LISTEN_SECONDS):
                await asked.wait()
        self._client = client

    async def _wait_until_idle(self) -> None:
        while (rest := self.idle_since + IDLE_SECONDS - time.monotonic()) > 0:  # noqa: ASYNC110
            await anyio.sleep(min(rest, IDLE_SECONDS))

    def _note_end(self) -> None:
        self._problem = self._problem or "the server closed the connection"
        self._scope.cancel()

    async def _note_change(self, message: object) -> None:
        if isinstance(message, ToolListChanged):
            self._forget_list()

    def _forget_list(self) -> None:
        self._changes += 1
        self._listing = None

    async def _elicit(
        self,
        context: object,  # noqa: ARG002 - the SDK passes it by name
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        """The answer of a person to what the server asks. The message of a refusal is the call's error."""
        try:
            if params.mode != "form":
                raise Refused("it asks to open an address, which nobody does here")
            if self._ask is None:
                raise Refused("it asks for input, and nobody can be asked: the inspector is off")
            if self._forms == MAX_QUESTIONS:
                raise Refused(f"it asks more than {MAX_QUESTIONS} questions at the same time")
            server = self._address.label or str(self._address)
            form = form_of(server, params.message, params.requested_schema)
        except Refused as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        log.warning("an MCP server asks for input at /inspector/containers", server=server)
        self._forms += 1
        try:
            with anyio.CancelScope(
                shield=True
            ):  # what is asked can be withdrawn only when it is known
                asked = await anyio.to_thread.run_sync(self._ask, form)
            values = await asyncio.wrap_future(asked)
        finally:
            self._forms -= 1
        if values is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=values)

    async def _examine(self, response: httpx2.Response) -> None:
        """Note an error's status, which the SDK does not report, and bound a body that is not a stream."""
        self._status = response.status_code if response.status_code >= 400 else 0
        if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
            raise httpx2.DecodingError(f"its reply is compressed ({encoding})")
        if "text/event-stream" not in response.headers.get("content-type", ""):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = BoundedBody(stream)

    def _refusal(self) -> ServerFailed | None:
        if self._status == TOO_MANY_REQUESTS:
            return RateLimited(f"it has too many requests (HTTP {self._status})")
        if self._status not in (401, 403):
            return None
        if self._login is not None:
            login = f"tool-emulator mcp login {self._address.login}"
            return ServerRefused(
                f"it refused {self._login.sent} (HTTP {self._status}); run {login}"
            )
        sent = "the credentials" if self._address.headers else "a request without credentials"
        return ServerRefused(f"it refused {sent} (HTTP {self._status})")

    async def _failure(self, error: Exception) -> ServerFailed:
        """What an error of the client means."""
        if isinstance(error, ServerFailed):
            return error
        if not isinstance(error, MCPError):
            return ServerFailed(self._detail(error))
        if error.code == REQUEST_TIMEOUT:
            return ServerFailed(f"it did not answer within {self._address.timeout:g} s")
        if error.code == CONNECTION_CLOSED and not str(error).startswith("SSE"):
            self.end()
            with anyio.move_on_after(1):
                await self._ended.wait()  # `run` knows the cause
            cause = f": {self._problem}" if self._problem else ""
            return ServerFailed(f"the connection was lost{cause}")
        if error.code == INVALID_REQUEST and self._status == 404:
            self.end()
            return SessionUnknown("it no longer knows the session")
        return self._refusal() or ServerFailed(self._detail(error))

    def _detail(self, error: BaseException) -> str:
        """The cause of a failure: one bounded line without credentials."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = str(error).strip().partition("\n")[0].rstrip(".")
        explains = isinstance(error, MCPError | httpx2.HTTPError | RuntimeError) and text
        text = text if explains else f"{type(error).__name__}: {text}"
        if isinstance(error, OSError) and error.filename:
            text = f"its command {error.filename!r} cannot be started: {error.strerror}"
        elif isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            text = f"its reply does not follow the protocol: {place}: {first['msg']}"
        elif isinstance(error, MCPError) and self._status:
            text += f" (HTTP {self._status})"
        if self._login is not None:
            text = self._login.without_secrets(text)
        return self._address.without_secrets(text)[:_MAX_DETAIL]


def _reason(stderr: str) -> str:
    """Why a command has ended: its first line about an error, as hints follow; or its last line.

    Indented lines are a stack or the details of an error.
    """
    lines = [line[:_MAX_DETAIL].rstrip() for line in stderr.splitlines() if line.strip()]
    errors = (line for line in lines if not line[0].isspace() and _ERROR.search(line))
    return next(errors, lines[-1].strip() if lines else "")


def _network_variables() -> dict[str, str]:
    """How this machine reaches others, which the SDK keeps from commands."""
    return {n: value for n, value in os.environ.items() if n.upper() in _NETWORK_VARIABLES}


def _complete(result: R) -> R:
    """Raises `ResultLost` for a result of a type that this client does not know, which is invalid (MCP
    2026-07-28)."""
    if result.result_type != "complete":
        raise ResultLost(f"its result has the unknown type {result.result_type[:64]!r}")
    return result


async def _no_check(name: str, result: CallToolResult) -> None:
    pass


def _listed(tool: Tool) -> dict[str, Any]:
    fields = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    shown = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "annotations": fields.get("annotations"),
    }
    return shown if tool.output_schema is None else shown | {"output_schema": tool.output_schema}
