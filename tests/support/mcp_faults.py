"""A misbehaving MCP server: ``python tests/support/mcp_faults.py [--port-file FILE]``; stdio without a file.

The variable TOKEN is the bearer token that it requires, LOG a file that tells what it was asked.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

PRICE = '{"article": "tea", "price": 1.10}'
"""What ``price`` sends as text: the same value as its structured content, in a notation of its own."""
_CHUNKS = [
    (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
    (b"IDAT", zlib.compress(b"\0\0")),
]
PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in [*_CHUNKS, (b"IEND", b"")]
    )
).decode()

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
PRICED = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
TOOLS: dict[str, dict[str, Any]] = {
    "price": {
        "description": "What an article costs.",
        "input_schema": {
            "type": "object",
            "properties": {"article": {"type": "string"}},
            "required": ["article"],
        },
        "output_schema": PRICED,
        "annotations": types.ToolAnnotations(read_only_hint=True),
    },
    "order": {"description": "Order an article.", "input_schema": TEXT},
    "slow": {"input_schema": {"type": "object", "properties": {"seconds": {"type": "number"}}}},
    "lie": {"input_schema": TEXT, "output_schema": PRICED},
    "big": {"input_schema": TEXT},
    "picture": {"input_schema": TEXT},
    "fail": {"input_schema": TEXT},
    "die": {"input_schema": TEXT},
    "change": {"input_schema": TEXT},
    "shop.stock": {"input_schema": TEXT},
    "broken": {"input_schema": {"type": "object", "properties": {"a": {"$ref": "http://evil/"}}}},
}

bus = InMemorySubscriptionBus()


def log(line: str) -> None:
    if file := os.environ.get("LOG"):
        with Path(file).open("a") as written:
            written.write(f"{line}\n")


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    log("list")
    return types.ListToolsResult(
        tools=[types.Tool(name=name, **one) for name, one in TOOLS.items()]
    )


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def call_tool(context: Any, params: Any) -> types.CallToolResult:
    arguments = params.arguments or {}
    log(f"{params.name} {arguments}")
    match params.name:
        case "price":
            value = {"article": "tea", "price": 1.1}
            return _text(PRICE).model_copy(update={"structured_content": value})
        case "slow":
            try:
                await anyio.sleep(arguments.get("seconds", 60))
            except BaseException:
                log("slow was cancelled")
                raise
        case "lie":
            return types.CallToolResult(content=[], structured_content={"price": "a lot"})
        case "big":
            return _text("x" * 10_000_000)
        case "picture":
            image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
            link = types.ResourceLink(type="resource_link", name="plan", uri="file:///plan.txt")
            return types.CallToolResult(content=[image, link])
        case "fail":
            return _text("no such article").model_copy(update={"is_error": True})
        case "die":
            os._exit(3)
        case "change":
            TOOLS["late"] = {"input_schema": TEXT}
            await bus.publish(ToolsListChanged())
            await context.session.send_tool_list_changed()
    return _text("done")


server = Server(
    "faults",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=ListenHandler(bus),
)


async def serve_stdio() -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_http(port_file: Path) -> None:
    app = server.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        token = os.environ.get("TOKEN")
        headers = dict(scope.get("headers", ()))
        if (
            token
            and scope["type"] == "http"
            and headers.get(b"authorization") != f"Bearer {token}".encode()
        ):
            challenge = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": challenge})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    port_file.write_text(str(listening.getsockname()[1]))
    config = uvicorn.Config(guarded, log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if "--port-file" in sys.argv:
        serve_http(Path(sys.argv[-1]))
    else:
        asyncio.run(serve_stdio())
