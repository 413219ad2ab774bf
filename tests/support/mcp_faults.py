"""A misbehaving MCP server, as a process of its own: `stdio` and `http` start it.

The variable TOKEN is the bearer token that it requires, LOG a file that tells what it was asked, LISTEN what
it does when it is first asked for changes: refuse, hang, or end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from tests.support.processes import ROOT, wait_until
from tests.support.tools import strings

PRICE = '{"article": "tea", "price": 1.10}'
"""What ``price`` sends as text: the same value as its structured content, in a notation of its own."""
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
PRICED = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
SLOW_REGEX = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
"""Takes CPython's engine a time that doubles with each character."""
TOOLS: dict[str, dict[str, Any]] = {
    "price": {
        "description": "What an article costs.",
        "input_schema": strings("article"),
        "output_schema": PRICED,
        "annotations": types.ToolAnnotations(read_only_hint=True),
    },
    "order": {"description": "Order an article.", "input_schema": TEXT},
    "slow": {
        "input_schema": {"type": "object", "properties": {"seconds": {"type": "number"}}},
        "annotations": types.ToolAnnotations(read_only_hint=True),
    },
    "pay": {"description": "Pay a bill.", "input_schema": strings("id")},
    "lie": {"input_schema": TEXT, "output_schema": PRICED},
    "omit": {"input_schema": TEXT, "output_schema": PRICED},
    "regex": {"input_schema": TEXT, "output_schema": SLOW_REGEX},
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
    """Two pages, of which the second names itself as the next."""
    tools = [types.Tool(name=name, **one) for name, one in TOOLS.items()]
    is_first = params is None or params.cursor is None
    if is_first:
        log("list")
    page = tools[:3] if is_first else tools[3:]
    return types.ListToolsResult(tools=page, next_cursor="second page")


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def call_tool(context: Any, params: Any) -> types.CallToolResult:
    arguments = params.arguments or {}
    log(f"{params.name} {arguments}")
    match params.name:
        case "price":
            value = {"article": "tea", "price": 1.1}
            return _text(PRICE).model_copy(update={"structured_content": value})
        case "slow" | "pay":
            try:
                await anyio.sleep(arguments.get("seconds", 1 if params.name == "pay" else 60))
            except BaseException:
                log(f"{params.name} was cancelled")
                raise
            log(f"{params.name} has ended")
        case "lie":
            return types.CallToolResult(content=[], structured_content={"price": "a lot"})
        case "regex":
            return types.CallToolResult(content=[], structured_content={"text": "a" * 22 + "b"})
        case "big":
            return _text("x" * 10_000_000)
        case "picture":
            image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
            link = types.ResourceLink(type="resource_link", name="plan", uri="file:///plan.txt")
            return types.CallToolResult(content=[image, link])
        case "fail":
            failure = {"is_error": True, "structured_content": {"code": 7}}
            return _text("no such article").model_copy(update=failure)
        case "die":
            os._exit(3)
        case "change":
            TOOLS["late"] = {"input_schema": TEXT}
            await bus.publish(ToolsListChanged())
            await context.session.send_tool_list_changed()
    return _text("done")


listened = ListenHandler(bus)


async def listen(context: Any, params: Any) -> Any:
    match os.environ.pop("LISTEN", ""):
        case "refuse":
            raise MCPError(types.METHOD_NOT_FOUND, "no such method")
        case "hang":
            await anyio.sleep_forever()
        case "end":
            listened.close()
            return {}
    return await listened(context, params)


server = Server(
    "faults",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=listen,
)


async def serve_stdio() -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_http(port_file: Path, served: Server = server) -> None:
    app = served.streamable_http_app()

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


_ENVIRONMENT = {"PYTHONPATH": str(ROOT)}


def stdio(log: Path) -> dict[str, Any]:
    """The settings of the server on standard input and output."""
    return {
        "command": sys.executable,
        "args": [__file__],
        "env": {"LOG": str(log), **_ENVIRONMENT},
    }


@contextmanager
def http(folder: Path, token: str = "", file: str = __file__) -> Iterator[str]:
    """The URL of the server in ``file`` on HTTP; ``folder``/log tells what it was asked."""
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    variables = {**os.environ, **_ENVIRONMENT, "LOG": str(folder / "log"), "TOKEN": token}
    command = [sys.executable, file, "--port-file", str(port_file)]
    process = subprocess.Popen(command, env=variables, cwd=ROOT)
    try:
        wait_until(lambda: port_file.exists() and port_file.read_text(), "the server did not start")
        yield f"http://127.0.0.1:{port_file.read_text()}/mcp"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    if "--port-file" in sys.argv:
        serve_http(Path(sys.argv[-1]))
    else:
        asyncio.run(serve_stdio())
