"""Calls that the proxy runs itself, and their results, as blocks of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from emulator.core.events import IMAGE, HostedCallFinished, HostedCallStarted
from emulator.hosted.search_results import read_pages

Json = dict[str, Any]

SERVER = "srvtoolu_"
"""The prefix of the ids of ``server_tool_use`` blocks."""
_CALL, _MCP = "call_", "mcptoolu_"
_OWN = re.compile(rf"{SERVER}[0-9a-f]{{24}}")


def hosted_call_id(block_id: str) -> str:
    """The id of the call in the history, by the id of its block."""
    return _CALL + block_id.removeprefix(_MCP).removeprefix(SERVER)


def is_own(result: Mapping[str, Any]) -> bool:
    """Whether the block is the result of a call that ran here. The stored history has it."""
    return _OWN.fullmatch(str(result.get("tool_use_id"))) is not None


def call_block(call: HostedCallStarted) -> Json:
    """The block of a call, whose ``input`` follows."""
    key = call.id.removeprefix(_CALL)
    if call.kind not in ("web_search", "web_fetch", "tool_search"):
        names = {"name": call.name, "server_name": call.server}
        return {"type": "mcp_tool_use", "id": _MCP + key, **names, "input": {}}
    return {"type": "server_tool_use", "id": SERVER + key, "name": call.name, "input": {}}


def result_block(call: HostedCallStarted, result: HostedCallFinished) -> Json:
    key = call_block(call)["id"]
    match call.kind:
        case "web_search":
            pages = _found_pages(result)
            return {"type": "web_search_tool_result", "tool_use_id": key, "content": pages}
        case "web_fetch":
            fetched = _fetched(call, result)
            return {"type": "web_fetch_tool_result", "tool_use_id": key, "content": fetched}
        case "tool_search":
            found = _found_tools(result)
            return {"type": "tool_search_tool_result", "tool_use_id": key, "content": found}
    return {
        "type": "mcp_tool_result",
        "tool_use_id": key,
        "is_error": result.is_error,
        "content": [{"type": "text", "text": text} for text in _texts(result)],
    }


def _texts(result: HostedCallFinished) -> list[str]:
    """Results in this API have only text."""
    if isinstance(result.content, str):
        return [result.content]
    return [str(part.get("text") or IMAGE) for part in result.content]


def _found_pages(result: HostedCallFinished) -> list[Json] | Json:
    """The pages; a client gets no text of them, as at Anthropic, where it is encrypted."""
    if result.is_error:
        return {
            "type": "web_search_tool_result_error",
            "error_code": result.error_code or "unavailable",
        }
    return [
        {
            "type": "web_search_result",
            "url": page.url,
            "title": page.title or page.url,
            "encrypted_content": "",
            "page_age": None,
        }
        for page in read_pages(result.content)
    ]


def _fetched(call: HostedCallStarted, result: HostedCallFinished) -> Json:
    """The text of a page, as a document."""
    if result.is_error:
        code = result.error_code or "url_not_accessible"
        return {"type": "web_fetch_tool_result_error", "error_code": code}
    source = {"type": "text", "media_type": "text/plain", "data": "\n".join(_texts(result))}
    document = {"type": "document", "source": source, "title": None, "citations": None}
    page = {"url": call.arguments["url"], "retrieved_at": None, "content": document}
    return {"type": "web_fetch_result", **page}


def _found_tools(result: HostedCallFinished) -> Json:
    if result.is_error:
        error = {"error_code": "invalid_tool_input", "error_message": result.content}
        return {"type": "tool_search_tool_result_error", **error}
    references = [{"type": "tool_reference", "tool_name": name} for name in result.found]
    return {"type": "tool_search_tool_search_result", "tool_references": references}
