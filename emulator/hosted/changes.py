"""Follow the changes of a server's tools: MCP 2026-07-28 sends them only in a stream that the client opens.

    open ──► acknowledged: what changed before is unknown ──► changes ──► the end ──► open, after a pause
      ├────► the server has no such stream: never again
      └────► refused, or lost: open, after a pause

A server that never answers costs the session's opening a moment. Without a stream the age of a list counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
from mcp import MCPError
from mcp.client import Client
from mcp_types import METHOD_NOT_FOUND

_PAUSE_SECONDS = (1.0, 300.0)
"""The first and the longest; a stream that lasted longer than that is no failure."""


async def follow_changes(client: Client, forget: Callable[[], None], asked: anyio.Event) -> None:
    """Call ``forget`` when the server's tools may have changed without a notification; set ``asked`` when the
    server has answered for the first time."""
    first, longest = _PAUSE_SECONDS
    rest = first
    while True:
        began = time.monotonic()
        try:
            async with client.listen(tools_list_changed=True) as changes:
                forget()
                asked.set()
                async for _ in changes:
                    pass  # the session gets the notification itself
        except Exception as error:  # noqa: BLE001 - a stream may end in any way, and the session goes on
            if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                return
        finally:
            asked.set()
        rest = first if time.monotonic() > began + longest else rest
        await anyio.sleep(rest)
        rest = min(rest * 2, longest)
