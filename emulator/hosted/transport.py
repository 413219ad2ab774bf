"""What the SDK's transports lack: a limit of a reply's size, a sign that the server has gone, and which call
was never sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream

MAX_REPLY_BYTES = 4 * 2**20


class BoundedBody(httpx2.AsyncByteStream):
    """A body that raises an error, which the SDK reports, when it is larger than `MAX_REPLY_BYTES`."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise httpx2.StreamError(f"larger than {MAX_REPLY_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


unsent_calls: ContextVar[list[Exception] | None] = ContextVar("unsent_calls", default=None)
"""The errors of connecting for the current call. The SDK sends each call in the context of its caller."""


class NotingTransport(httpx2.AsyncHTTPTransport):
    """Notes in `unsent_calls` that a request was never sent."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if (errors := unsent_calls.get()) is not None:
                errors.append(error)
            raise


class _Watched(ObjectReceiveStream[Any]):
    """A transport's incoming messages; ``on_end`` is called when the transport has ended."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except anyio.EndOfStream:
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def watched(transport: Any, on_end: Callable[[], None]) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of an SDK's transport; ``on_end`` is called when the incoming one has ended."""
    async with transport as (incoming, outgoing):
        yield _Watched(incoming, on_end), outgoing
