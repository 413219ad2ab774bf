"""What other rooms know of upstreams. Knows no client library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from emulator.upstream.pass_through import PassedOnRequest, PassedOnResponse
from emulator.upstream.reply import Chunk, UpstreamReply

if TYPE_CHECKING:
    from openai.types import Model

__all__ = [
    "AnswerUpstream",
    "Chunk",
    "Messages",
    "Spend",
    "TokenBudget",
    "Upstream",
    "UpstreamReply",
]
Messages = Sequence[Mapping[str, Any]]
Spend = Callable[[int], None]
"""Charges a client for a number of tokens."""


class AnswerUpstream(Protocol):
    """An upstream as one answer uses it: the client's key, the answer's deadline and the budget are bound."""

    def open(self, messages: Messages, fields: Mapping[str, Any]) -> UpstreamReply:
        """Send one turn. ``fields`` are the request's other fields. Raises `UpstreamFailed`."""


class Upstream(Protocol):
    """One model server. Safe to share between threads."""

    def open(
        self, messages: Messages, fields: Mapping[str, Any], until: float, key: str | None
    ) -> UpstreamReply:
        """Send a chat completion request and return once the upstream has accepted it.

        ``fields`` are the request's other fields as JSON, ``model`` among them; ``until`` is the answer's
        deadline (monotonic); ``key`` replaces the operator's. Raises `UpstreamFailed`.
        """

    def pass_on(self, request: PassedOnRequest, until: float, key: str | None) -> PassedOnResponse:
        """Send a request that is not a chat as it is. Raises `BadRequest` and `UpstreamFailed`."""

    def models(self, key: str | None) -> list[Model]:
        """The upstream's model list; fields that it omits are None. Raises `UpstreamFailed`."""

    def at_root(self, path: str) -> object:
        """The JSON at a path of the server, outside its base URL; None if there is none."""

    def close(self) -> None: ...


class TokenBudget(Protocol):
    """How many tokens each client may still use. Safe to share between threads."""

    def check(self, client: str) -> None:
        """Raises `RateLimited` if the client's budget is spent."""

    def spend(self, client: str, tokens: int) -> None: ...
