"""What the SDK's transports lack: a limit of a reply's size, and a sign that the server has gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
