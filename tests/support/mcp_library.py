"""An MCP server with a small web, an index of files and a pen, as a process on standard input and output or
over HTTP: what the vendors' types of tools are served by.

LOG is a file that tells what the server was asked.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, ToolAnnotations
from pydantic import BaseModel

from tests.support import mcp_faults
from tests.support.processes import ROOT

PAGES = {
    "https://tea.example.net/price": ("Tea prices", "A pound of tea costs 4 pounds."),
    "https://coffee.example.org/price": ("Coffee prices", "A pound of coffee costs 7 pounds."),
}
FILES = {
    "handbook.md": ("vs_public", "The office opens at nine."),
    "salaries.md": ("vs_secret", "The director earns 90,000."),
}
READS = ToolAnnotations(read_only_hint=True)

server = MCPServer("library", log_level="ERROR")


def log(line: str) -> None:
    if file := os.environ.get("LOG"):
        with Path(file).open("a") as written:
            written.write(f"{line}\n")


def _matches(query: str, text: str) -> bool:
    return any(word in text.lower() for word in query.lower().split())


@server.tool(annotations=READS)
def find(q: str) -> dict[str, list[dict[str, str]]]:
    """Pages with a word of the query."""
    log(f"find {q}")
    pages = [(url, *page) for url, page in PAGES.items() if _matches(q, page[1])]
    return {"items": [{"link": url, "name": name, "about": text} for url, name, text in pages]}


@server.tool(annotations=READS)
def find_near(query: str, where: str = "", town: str = "") -> list[dict[str, str]]:
    """Nothing, wherever."""
    log(f"find_near {query}, {town or '-'}, {where or '-'}")
    return []


@server.tool(annotations=READS, structured_output=False)
def find_text(query: str) -> str:
    """The same as text for people."""
    log(f"find_text {query}")
    pages = [(url, *page) for url, page in PAGES.items() if _matches(query, page[1])]
    return "\n\n".join(f"{name}\n{url}\n{text}" for url, name, text in pages)


@server.tool(annotations=READS, structured_output=False)
def read(address: str) -> str:
    """The text of a page."""
    log(f"read {address}")
    if address not in PAGES:
        raise ToolError("there is no such page")
    return " ".join(PAGES[address])


@server.tool(annotations=READS)
def lookup(
    q: str, stores: list[str], context: Context, limit: int = 10
) -> dict[str, list[dict[str, Any]]]:
    """Files of these stores with a word of the query, and one that belongs to the client."""
    request = context.request_context.request
    headers = request.headers if request is not None else {}
    client = os.environ.get("EMULATOR_CLIENT", headers.get("x-emulator-client"))
    log(f"lookup {q} {stores} for {client}")
    files = [(name, text) for name, (store, text) in FILES.items() if store in stores]
    files.append(("notes.md", f"Only for {client}."))
    hits = [
        {"id": f"file-{n}", "name": name, "text": text, "score": 1 - n / 10}
        for n, (name, text) in enumerate(files)
    ]
    return {"hits": hits[:limit]}


@server.tool(structured_output=False)
async def draw(text: str, dimensions: str = "1x1", seconds: float = 0) -> Any:
    """A picture of one colour, which the text decides."""
    log(f"draw {text} {dimensions}")
    if "slowly" in text:
        await anyio.sleep(20)
    if "nothing" in text:
        return "I do not draw that."
    return ImageContent(type="image", data=picture(text), mime_type="image/png")


class Link(BaseModel):
    link: str


class Page(BaseModel):
    meta: Link
    titles: list[str]


class Pages(BaseModel):
    found: list[Page]


@server.tool(annotations=READS)
def browse(query: str) -> Pages:
    """Pages of another shape, which the schema describes."""
    pages = PAGES.items()
    return Pages(found=[Page(meta=Link(link=url), titles=[title]) for url, (title, _) in pages])


@server.tool(annotations=READS)
def find_all(queries: list[str], query: dict[str, str] | None = None) -> dict[str, Any]:
    """Pages by several queries."""
    return {}


@server.tool(annotations=READS)
def remember(query: str, user: str) -> dict[str, Any]:
    """The pages of a user."""
    log(f"remember {query} of {user}")
    return {"items": []}


@server.tool()
def sketch(text: str) -> dict[str, Any]:
    """A picture as OpenAI's images API sends it, and as an address."""
    image = picture(text)
    return {"data": [{"b64_json": image}], "url": f"data:image/png;base64,{image}"}


def picture(text: str) -> str:
    """A PNG in base64, whose colour is a checksum of ``text``."""
    import base64

    colour = struct.pack(">I", zlib.crc32(text.encode()))[:3]
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + colour * 8 for _ in range(8))
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


SEARCH = {
    "tool": "library.find",
    "query": "q",
    "results": "items",
    "url": "link",
    "title": "name",
    "snippet": "about",
}
"""How ``[serve.web_search]`` names its pages."""


def stdio(log: Path) -> dict[str, Any]:
    """The settings of the server on standard input and output."""
    environment = {"LOG": str(log), "PYTHONPATH": str(ROOT)}
    return {"command": sys.executable, "args": [__file__], "env": environment}


def http(folder: Path) -> AbstractContextManager[str]:
    """The URL of the server on HTTP; ``folder``/log tells what it was asked."""
    return mcp_faults.http(folder, file=__file__)


if __name__ == "__main__":
    if "--port-file" in sys.argv:
        mcp_faults.serve_http(Path(sys.argv[-1]), server)
    else:
        server.run()
