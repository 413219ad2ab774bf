"""The MCP servers of a Messages request -> the tools ``{"type": "mcp"}`` that the core knows.

Two forms (Anthropic's documentation, "MCP connector"): a server of ``mcp_servers`` is named by one
``mcp_toolset`` of ``tools`` (beta mcp-client-2025-11-20 and later), or has its ``tool_configuration`` itself
(mcp-client-2025-04-04). A toolset may also name a server of the operator, which ``mcp_servers`` lacks.
This API does not ask the user about calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from emulator.core.errors import BadRequest
from emulator.core.protocol import Lenient, validated

Json = dict[str, Any]

TOOLSET = "mcp_toolset"
LISTING = "mcp_tool_listing"
"""The content block with the tools that a server listed."""
LISTING_BETA = "mcp-client-2026-09-15"
_INLINE_BETA = "mcp-client-2025-04-04"


class _InlineConfiguration(Lenient):
    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class McpServer(Lenient):
    type: str = Field(pattern="^url$")
    url: str
    name: str = Field(min_length=1)
    authorization_token: str | None = None
    tool_configuration: _InlineConfiguration | None = None


class _ToolConfig(Lenient):
    enabled: bool | None = None
    defer_loading: bool | None = None


class _Toolset(Lenient):
    mcp_server_name: str
    default_config: _ToolConfig | None = None
    configs: dict[str, _ToolConfig] | None = None
    tools: list[dict[str, Any]] | None = None


def with_mcp_tools(
    tools: Sequence[Json], servers: Sequence[McpServer], betas: str
) -> tuple[list[Json], dict[str, list[Json]]]:
    """Return ``tools`` with toolsets and inline servers as ``mcp`` tools, and the lists of tools in toolsets,
    by server. ``betas`` is the header ``anthropic-beta``.

    Raises `BadRequest`.
    """
    by_name: dict[str, McpServer] = {}
    for n, server in enumerate(servers):
        if by_name.setdefault(server.name, server) is not server:
            raise _error(f"mcp_servers[{n}].name", "another server has this name")
    converted: list[Json] = []
    pinned: dict[str, list[Json]] = {}
    named: set[str] = set()
    for n, tool in enumerate(tools):
        if tool.get("type") != TOOLSET:
            converted.append(tool)
            continue
        toolset = validated(_Toolset, tool, f"tools[{n}]")
        name = toolset.mcp_server_name
        if name in named:
            raise _error(f"tools[{n}].mcp_server_name", "another mcp_toolset names this server")
        named.add(name)
        if toolset.tools is not None:
            pinned[name] = toolset.tools
        converted.append({**_item(name, by_name.get(name)), **_choice(toolset)})
    for n, server in enumerate(servers):
        inline = server.tool_configuration
        if server.name in named:
            continue
        if inline is None and _INLINE_BETA not in betas:
            raise _error(f"mcp_servers[{n}]", "no mcp_toolset of tools names this server")
        item = _item(server.name, server)
        if inline is not None and inline.enabled is False:
            item["allowed_tools"] = []
        elif inline is not None and inline.allowed_tools is not None:
            item["allowed_tools"] = inline.allowed_tools
        converted.append(item)
    return converted, pinned


def server_places(tools: Sequence[Json], servers: Sequence[McpServer]) -> Iterator[tuple[str, str]]:
    """The places in the converted tools, each with the place in the request that the client sent."""
    numbers = {server.name: n for n, server in enumerate(servers)}
    for n, tool in enumerate(tools):
        if tool.get("type") == TOOLSET:
            if (at := numbers.pop(str(tool.get("mcp_server_name")), None)) is not None:
                yield f"tools[{n}].server_url", f"mcp_servers[{at}].url"
                yield f"tools[{n}].authorization", f"mcp_servers[{at}].authorization_token"
            yield f"tools[{n}].server_label", f"tools[{n}].mcp_server_name"
            yield f"tools[{n}].allowed_tools", f"tools[{n}].configs"
    for n, at in enumerate(numbers.values(), len(tools)):
        yield f"tools[{n}].server_url", f"mcp_servers[{at}].url"
        yield f"tools[{n}].authorization", f"mcp_servers[{at}].authorization_token"
        yield f"tools[{n}].server_label", f"mcp_servers[{at}].name"
        yield f"tools[{n}]", f"mcp_servers[{at}]"


def listed_servers(contents: Sequence[str | Sequence[Mapping[str, Any]]]) -> dict[str, list[Json]]:
    """The lists of tools in the contents of the messages, by server; the latest counts."""
    return {
        str(block.get("mcp_server_name")): [tool for tool in tools if isinstance(tool, dict)]
        for content in contents
        if not isinstance(content, str)
        for block in content
        if block.get("type") == LISTING and isinstance(tools := block.get("tools"), list)
    }


def _item(name: str, server: McpServer | None) -> Json:
    item: Json = {"type": "mcp", "server_label": name, "require_approval": "never"}
    if server is not None:
        item["server_url"] = server.url
        if server.authorization_token is not None:
            item["authorization"] = server.authorization_token
    return item


def _choice(toolset: _Toolset) -> Json:
    """Which tools of the server are offered, and whether they are loaded later."""
    default, configs = toolset.default_config or _ToolConfig(), toolset.configs or {}
    enabled = {name: one.enabled for name, one in configs.items() if one.enabled is not None}
    deferred = {n: one.defer_loading for n, one in configs.items() if one.defer_loading is not None}
    choice: Json = {"defer_loading": True} if default.defer_loading else {}
    choice |= {"deferred_tools": deferred} if deferred else {}
    if default.enabled is False:
        return {**choice, "allowed_tools": [name for name, on in enabled.items() if on]}
    return {**choice, "excluded_tools": [name for name, on in enabled.items() if not on]}


def _error(place: str, problem: str) -> BadRequest:
    return BadRequest(f"{place}: {problem}.", param=place)
