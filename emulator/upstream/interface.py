"""What the other rooms know of an upstream: it opens chats and lists models. Knows no client library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from emulator.upstream.reply import Chunk, Reply

__all__ = ["Budget", "Chat", "Chunk", "OneUpstream", "Reply", "Turns"]
Chat = Sequence[Mapping[str, Any]]


class Turns(Protocol):
    """An upstream for the turns of one answer, which all together have one deadline."""

    def open(self, messages: Chat, fields: Mapping[str, Any]) -> Reply: ...


class OneUpstream(Protocol):
    """One server. Safe to share between threads."""

    def open(
        self, messages: Chat, fields: Mapping[str, Any], until: float, key: str | None
    ) -> Reply:
        """Send a chat completion request; returns once the upstream has answered with a status.

        ``fields`` are the request's other fields as JSON, ``model`` among them; ``until`` is the answer's
        deadline (monotonic), ``key`` the client's own where that is to be sent. Raises `UpstreamFailed`.
        """

    def models(self, key: str | None) -> list[dict[str, Any]]:
        """The upstream's model list. Raises `UpstreamFailed`."""

    def at_root(self, path: str) -> object:
        """The JSON at a path of the server, outside of its base URL; None where there is none."""

    def close(self) -> None: ...


class Budget(Protocol):
    """How many tokens each client may still have of the upstreams. Safe to share between threads."""

    def check(self, client: str) -> None:
        """Raises `RateLimited` where they are spent."""

    def spend(self, client: str, tokens: int) -> None: ...
