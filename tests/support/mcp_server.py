"""An MCP server for the tests, on its standard input and output: ``python tests/support/mcp_server.py``."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("shop")


@server.tool()
def price(article: str) -> dict[str, int | str]:
    """What an article costs."""
    if article == "nothing":
        raise ToolError("there is no such article")
    return {"article": article, "price": 3}


if __name__ == "__main__":
    server.run()
