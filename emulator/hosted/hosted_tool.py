"""One tool that the proxy runs, the result of a call, and the hosted tools of one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from emulator.core.events import IMAGE, HostedError, HostedKind
from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.url_sources import URLSources
from emulator.tools.effects import declares_repeatable, hints_of

SEARCHES: tuple[HostedKind, ...] = ("web_search", "web_fetch", "file_search")
"""The types of vendors that only read."""

Outcome = Literal["known", "not made", "unknown"]
"""Whether the server has made a call that failed: it answered so; it was never asked, or has cancelled the
call's task; or nobody knows."""


@dataclass(frozen=True)
class HostedResult:
    """The result of one call."""

    content: str | list[dict[str, Any]]
    """Text (JSON if the tool returned structured content), or parts as in a chat message: text and images."""
    is_error: bool = False
    """The call failed: ``content`` says why."""
    found: tuple[str, ...] = ()
    """The names of the tools that a search found."""
    outcome: Outcome = "known"
    image: str = ""
    """An image for the client, as a data: URL; the model reads ``content``."""
    task: str = ""
    """The server makes the call as a task: `HostedTool.resume` has the result."""
    error_code: HostedError = ""

    @property
    def text(self) -> str:
        """The content for APIs that have only text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part.get("text") or IMAGE) for part in self.content)


class HostedCall(Future[HostedResult]):
    """A call whose answer may end before. An act that has begun cannot be cancelled, but its task can."""

    def __init__(self) -> None:
        super().__init__()
        self.left: Future[None] = Future()
        """Is done when the answer ends."""

    def cancel(self) -> bool:
        with suppress(InvalidStateError):
            self.left.set_result(None)
        return super().cancel()


@dataclass(frozen=True)
class AwaitedTask:
    """A task as which a server makes a call, and when its answer ends."""

    id: str
    """`HostedResult.task`"""
    until: float
    """Monotonic time."""
    left: Future[None] = field(default_factory=Future)
    """Is done when the answer ends before."""


def ended_call(result: HostedResult) -> Future[HostedResult]:
    """A call that has ended already."""
    future: Future[HostedResult] = Future()
    future.set_result(result)
    return future


def _resume_nothing(_: AwaitedTask) -> Future[HostedResult]:
    return ended_call(HostedResult("the tool has no tasks.", is_error=True, outcome="unknown"))


@dataclass(frozen=True)
class HostedTool:
    """One function that the model may call and the proxy runs."""

    definition: Mapping[str, Any]
    """The function in chat's shape, with ``annotations`` and ``output_schema`` inside ``function`` if known.
    Its name is unique among the tools of the request."""
    kind: HostedKind
    server: str
    """The server's label; "" for a tool without a server."""
    name: str
    """The tool's name at its server."""
    start: Callable[[dict[str, Any]], Future[HostedResult]]
    """Starts a call with valid arguments, and returns immediately. The future never raises: a call that fails
    has a result with ``is_error``. Cancelling the future cancels the call at its server."""
    resume: Callable[[AwaitedTask], Future[HostedResult]] = _resume_nothing
    """As ``start``, of a call that the server makes as a task, in any process. A task is cancelled with its
    answer."""
    needs_approval: bool = False
    """The client decides about each call before it runs."""
    container_id: Callable[[], str] = str
    """Returns the container in which calls run, made by the first call; "" if they run elsewhere."""
    url_sources: URLSources | None = None
    """Which texts may name the URL that a fetch is for; None for all that the model has not written."""
    is_hidden: bool = False
    """The client knows nothing of the tool: no front shows its calls."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be made a second time: a search, or what the tool's own hints declare.

        No name and no description decides it.
        """
        function = self.definition["function"]
        return self.kind in (*SEARCHES, "tool_search") or declares_repeatable(
            hints_of(self.definition, function), function.get("parameters") or {}
        )

    @property
    def is_sent_back(self) -> bool:
        """Whether clients that see the tool's calls send them back with their results.

        Of the vendors' types they have only links, or an image.
        """
        return not self.is_hidden and self.kind not in (*SEARCHES, "image_generation")

    @property
    def function_name(self) -> str:
        """The name in ``definition``."""
        return str(self.definition["function"]["name"])


@dataclass(frozen=True)
class ServerListing:
    """The tools that a server offers in one request, as it lists them."""

    server: str
    tools: tuple[Mapping[str, Any], ...]
    """``name``, ``description``, ``input_schema`` and ``annotations`` of each."""
    error: str | None = None
    """Why the server could not be asked. It then offers no tools."""


@dataclass(frozen=True)
class HostedTools:
    """The hosted tools of one request."""

    tools: tuple[HostedTool, ...] = ()
    listings: tuple[ServerListing, ...] = ()
    """The servers that were asked for this request: not those whose list is in the request's history."""
    types: frozenset[str] = frozenset({"mcp"})
    """The types of items in the request's ``tools`` that the proxy runs itself."""
    notice: str = ""
    """What the model must know of tools that the request asks for and nobody runs."""
    ignored: tuple[str, ...] = ()
    """The fields of items in the request's ``tools`` that have no effect."""

    def find(self, function_name: str) -> HostedTool | None:
        return next((tool for tool in self.tools if tool.function_name == function_name), None)


NO_HOSTED_TOOLS = HostedTools(types=frozenset())


class ToolResolver(Protocol):
    """Finds the hosted tools of requests. Safe to share between threads."""

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """The tools that ``chat`` names, and those that the operator offers in every request.

        Raises `BadRequest` naming the place.
        """
