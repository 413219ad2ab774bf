"""An MCP server for the tests: over streamable HTTP in a thread, with a record of what it was asked, or as a
process on standard input and output (``python tests/support/mcp_http.py``).

Imports nothing of the emulator: the tests of clients use it too.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError


def shop() -> MCPServer:
    server = MCPServer("shop", log_level="ERROR")

    @server.tool()
    def price(article: str) -> dict[str, int | str]:
        """What an article costs."""
        if article == "nothing":
            raise ToolError("there is no such article")
        return {"article": article, "price": 3}

    return server


@dataclass
class ShopServer:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The arguments of the calls."""
        made = [one for one in self.requests if one.get("method") == "tools/call"]
        return [one["params"]["arguments"] for one in made]

    @property
    def listings(self) -> int:
        """How often the tools were listed."""
        return sum(one.get("method") == "tools/list" for one in self.requests)


@contextmanager
def shop_over_http() -> Iterator[ShopServer]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = ShopServer(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        app = shop().streamable_http_app()

        async def recorded(scope: Any, receive: Any, send: Any) -> None:
            body = b""

            async def record() -> Any:
                nonlocal body
                message = await receive()
                if message["type"] == "http.request":
                    body += message.get("body", b"")
                    if body and not message.get("more_body"):
                        running.requests.append(json.loads(body))
                return message

            await app(scope, record, send)

        served = uvicorn.Server(
            uvicorn.Config(recorded, log_level="error", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=served.run, args=[[listening]], daemon=True)
        thread.start()
        try:
            yield running
        finally:
            served.should_exit = True
            thread.join()


if __name__ == "__main__":
    shop().run()
