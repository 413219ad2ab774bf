"""Calls that the proxy runs itself, and their results, as blocks of an answer."""

from __future__ import annotations

from typing import Any

from emulator.core.events import HostedCallFinished, HostedCallStarted
from emulator.hosted.hosted_tool import IMAGE
from emulator.hosted.search_results import read_pages

Json = dict[str, Any]

SERVER = "srvtoolu_"
"""The prefix of the ids of ``server_tool_use`` blocks."""
_CALL, _MCP = "call_", "mcptoolu_"


def hosted_call_id(block_id: str) -> str:
    """The id of the call in the history, by the id of its block."""
    return _CALL + block_id.removeprefix(_MCP).removeprefix(SERVER)


def call_block(call: HostedCallStarted) -> Json:
    """The block of a call, whose ``input`` follows."""
    key = call.id.removeprefix(_CALL)
    if call.kind not in ("web_search", "tool_search"):
        names = {"name": call.name, "server_name": call.server}
        return {"type": "mcp_tool_use", "id": _MCP + key, **names, "input": {}}
    name = call.kind if call.kind == "web_search" else call.name
    return {"type": "server_tool_use", "id": SERVER + key, "name": name, "input": {}}


def result_block(call: HostedCallStarted, result: HostedCallFinished) -> Json:
    key = call_block(call)["id"]
    match call.kind:
        case "web_search":
            pages = _found_pages(result)
            return {"type": "web_search_tool_result", "tool_use_id": key, "content": pages}
        case "tool_search":
            found = _found_tools(result)
            return {"type": "tool_search_tool_result", "tool_use_id": key, "content": found}
    content = result.content
    # Results in this API have only text.
    texts = (
        [content] if isinstance(content, str) else [str(p.get("text") or IMAGE) for p in content]
    )
    return {
        "type": "mcp_tool_result",
        "tool_use_id": key,
        "is_error": result.is_error,
        "content": [{"type": "text", "text": text} for text in texts],
    }


def _found_pages(result: HostedCallFinished) -> list[Json] | Json:
    """The pages; a client gets no text of them, as at Anthropic, where it is encrypted."""
    if result.is_error:
        return {"type": "web_search_tool_result_error", "error_code": "unavailable"}
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


def _found_tools(result: HostedCallFinished) -> Json:
    if result.is_error:
        error = {"error_code": "invalid_tool_input", "error_message": result.content}
        return {"type": "tool_search_tool_result_error", **error}
    references = [{"type": "tool_reference", "tool_name": name} for name in result.found]
    return {"type": "tool_search_tool_search_result", "tool_references": references}
