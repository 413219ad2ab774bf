"""What other rooms see of an upstream: `Upstream`, and its open answers. Knows no client library.

An open answer is an `UpstreamReply` (the chunks of a chat) or an `UpstreamBody` (passed-on bytes). The trace,
the metrics, the token budget and the upstream's slot register callbacks instead of wrapping it, so that each
chunk passes through one generator only. The life of either:

    open -> first output or data -> closed

Closing twice is safe. The close callbacks run exactly once, in last-in-first-out order, even if one of them
raises, and even if nothing was ever read (a HEAD request, a client that disconnected early): otherwise the
upstream's slot would leak.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from urllib3.exceptions import HTTPError

from emulator.core.client_disconnect import stop_on_disconnect
from emulator.core.errors import UpstreamFailed
from emulator.upstream.failures import broken_response

if TYPE_CHECKING:
    from emulator.upstream.pass_through import PassedOnRequest
    from emulator.upstream.transport import UpstreamResponse

Messages = Sequence[Mapping[str, Any]]
Chunk = dict[str, Any]
"""The JSON of a chat completion chunk, as the SDK's class of that name."""
ModelRow = dict[str, Any]
"""A model in a server's list: ``id``, ``owned_by`` (or None), ``created``, and whatever the server adds."""


@dataclass
class Received:
    """What a reply has brought so far."""

    characters: int = 0
    """Of all deltas: see `characters_of`."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """The last reported usage."""
    has_output: bool = False
    """A delta had more than a role."""
    has_finish: bool = False
    """A choice had a ``finish_reason``."""
    error: UpstreamFailed | None = None
    """The error that ended the reply."""


def characters_of(choices: Iterable[Mapping[str, Any]]) -> int:
    """About how many characters the choices of a chunk add to the reply, in any field."""
    size = 0
    for choice in choices:
        for name, value in choice["delta"].items():
            if value and name != "role":
                size += len(value) if type(value) is str else len(str(value))
    return size


MAX_REPLY_CHARS = 2**20
"""A longer reply is cut off, with the ``finish_reason`` ``length``."""


class UpstreamReply(ABC):
    """A context manager that closes the connection. Iterate it for chunks.

    When the client disconnects (`emulator.core.client_disconnect`), the connection ends immediately.
    """

    headers: Mapping[str, str] = {}
    """The response headers that the client sees: its rate limits."""
    more_arrived = False
    """True if the next chunk has arrived already, so that reading it does not wait."""

    def __init__(self) -> None:
        self.received = Received()
        self.on_first_output: Callable[[], None] = lambda: None
        """Called when the first chunk that has output arrives."""
        self._on_close = ExitStack()

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks and update `received`. Raises `UpstreamFailed`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Safe to call twice."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the reply is closed, in last-in-first-out order."""
        self._on_close.callback(callback)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        if isinstance(error, UpstreamFailed):
            self.received.error = error
        with self._on_close:
            self.close()


class UpstreamBody:
    """The body of a passed-on response. Iterate it for bytes; ends when it is read, fails or is closed."""

    def __init__(self, response: UpstreamResponse, upstream: str) -> None:
        """``upstream`` names the upstream in error messages."""
        self.on_data: Callable[[bytes], None] = lambda _: None
        """Called with each piece."""
        self.error: UpstreamFailed | None = None
        """The error that ended the body."""
        self._response = response
        self._upstream = upstream
        self._on_close = ExitStack()
        self._on_close.callback(response.close)
        self._on_close.enter_context(stop_on_disconnect(response.shut_down))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the body is closed, in last-in-first-out order."""
        self._on_close.callback(callback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            data = self._response.read()
        except HTTPError as error:
            self.error = broken_response(error, self._upstream)
            self.close()
            raise self.error from error
        if not data:
            self.close()
            raise StopIteration
        self.on_data(data)
        return data

    def close(self) -> None:
        """Close the connection and run the callbacks. Safe to call twice."""
        self._on_close.close()


@dataclass(frozen=True)
class PassedOnResponse:
    """The upstream's response. ``body`` must be read to its end, or closed."""

    status: int
    headers: Mapping[str, str]
    body: UpstreamBody
    ignored: tuple[str, ...] = ()
    """The names of the client's fields that were not sent."""


class Upstream(Protocol):
    """One model server. Safe to share between threads."""

    def open(
        self,
        messages: Messages,
        fields: Mapping[str, Any],
        until: float,
        key: str | None,
        first_token_until: float,
    ) -> UpstreamReply:
        """Send a chat completion request and return once the upstream has accepted it.

        ``fields`` are the request's other fields as JSON, ``model`` among them; ``until`` is the answer's
        deadline (monotonic), ``first_token_until`` that of its first output; ``key`` replaces the operator's.
        Raises `UpstreamFailed`.
        """

    def pass_on(self, request: PassedOnRequest, until: float, key: str | None) -> PassedOnResponse:
        """Send a request that is not a chat, unchanged. Raises `BadRequest` and `UpstreamFailed`."""

    def models(self, key: str | None) -> list[ModelRow]:
        """The upstream's model list; fields that it omits are None. Raises `UpstreamFailed`."""

    def at_root(self, path: str) -> object:
        """The JSON at a path of the server, outside its base URL; None if the request fails."""

    def close(self) -> None: ...
