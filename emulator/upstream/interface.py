"""What the other rooms know of an upstream: it opens chats and lists models. Knows no client library."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

Chunk = dict[str, Any]
Chat = Sequence[Mapping[str, Any]]

_MODELS_FOR_SECONDS = 60


class UpstreamReply(Protocol):
    """An open answer of the upstream: iterate it for chunks, leave it to close the connection."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def __iter__(self) -> Iterator[Chunk]: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the answer that its client is to see: how much more may be asked."""

    def abort(self) -> None:
        """Break the connection, from any thread; a read that waits ends at once."""


class Turns(Protocol):
    """An upstream for the turns of one answer, which all together have one deadline."""

    def open(self, messages: Chat, fields: Mapping[str, Any]) -> UpstreamReply: ...


class Upstream(Protocol):
    def for_one_answer(self) -> Turns: ...

    def models(self) -> list[dict[str, Any]]: ...

    def close(self) -> None: ...


class ModelList:
    """The upstream's models, asked for at most once a minute."""

    def __init__(self, upstream: Upstream, now: Callable[[], float] = time.monotonic) -> None:
        self._upstream = upstream
        self._now = now
        self._lock = threading.Lock()
        self._models: list[dict[str, Any]] = []
        self._until = -math.inf

    def all(self) -> list[dict[str, Any]]:
        """Raises `UpstreamFailed`."""
        with self._lock:
            if self._now() >= self._until:
                self._models = self._upstream.models()
                self._until = self._now() + _MODELS_FOR_SECONDS
            return self._models
