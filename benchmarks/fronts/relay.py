"""`benchmarks.load.bare` without threads: asyncio that only passes bytes on (Starlette, aiohttp)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

UPSTREAM = os.environ["BARE_UPSTREAM"] + "/chat/completions"
HEADERS = {"authorization": "Bearer none", "content-type": "application/json"}


@asynccontextmanager
async def opened(app: Starlette) -> AsyncIterator[None]:
    connections = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connections, timeout=timeout) as session:
        app.state.session = session
        yield


async def pass_on(request: Request) -> Response:
    body = await request.body()
    answer = await request.app.state.session.post(UPSTREAM, data=body, headers=HEADERS)
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return StreamingResponse(passed(answer), answer.status, media_type=kind)
    async with answer:
        return Response(await answer.read(), answer.status, media_type=kind)


async def passed(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with answer:
        async for data in answer.content.iter_any():
            yield data


app = Starlette(routes=[Route("/v1/chat/completions", pass_on, methods=["POST"])], lifespan=opened)
