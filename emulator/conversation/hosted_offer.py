"""Offer hosted tools to the model as functions: under unique names, with ``tool_choice`` and the history in
terms of these names. Below this module a hosted tool is a function like any other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.core.errors import BadRequest
from emulator.core.protocol import ChatCompletionRequest, HistoryCall, Message, ToolChoice
from emulator.hosted.hosted_tool import HostedTool, HostedTools

_MAX_NAME = 64
"""Characters of a function's name that every upstream accepts."""


def offer_hosted_tools(
    chat: ChatCompletionRequest, hosted: HostedTools
) -> tuple[ChatCompletionRequest, HostedTools]:
    """Return the request with the hosted tools as functions, and the tools under their names in it.

    The items that named them keep their places, without credentials. Raises `BadRequest`.
    """
    items = [
        {"type": item["type"]} if is_hosted(item, hosted) else item for item in chat.tools or ()
    ]
    hosted = replace(hosted, tools=_uniquely_named(hosted.tools, items))
    if not hosted.tools and items == (chat.tools or []):
        return chat, hosted
    items += [_definition(tool, chat) for tool in hosted.tools]
    changes: dict[str, Any] = {"tools": items, "tool_choice": _choice(chat.tool_choice, hosted)}
    changed = {name: value for name, value in changes.items() if value != getattr(chat, name)}
    return chat.model_copy(update=changed), hosted


def _definition(tool: HostedTool, chat: ChatCompletionRequest) -> dict[str, Any]:
    """The tool's definition, with the callers of the item that names it."""
    if not chat.shows_programs:
        return dict(tool.definition)
    items = (
        item
        for item in chat.tools or ()
        if str(item.get("type")).startswith(tool.kind)
        and (tool.kind != "mcp" or item.get("server_label", "") == tool.server)
    )
    return {**tool.definition, "callers": next(items, {}).get("callers", ["direct"])}


def is_hosted(item: Mapping[str, Any], hosted: HostedTools) -> bool:
    """Return True if an item of ``tools`` or ``allowed_tools`` names tools that the proxy runs."""
    kind = item.get("type")
    return isinstance(kind, str) and kind in hosted.types


def with_offered_names(messages: Sequence[Message], hosted: HostedTools) -> list[Message]:
    """The history, in which each hosted call has the name under which its tool is offered now."""
    names = {(tool.server, tool.name): tool.function_name for tool in hosted.tools}
    return [
        message.model_copy(
            update={"tool_calls": [_renamed(call, names) for call in message.tool_calls]}
        )
        if message.tool_calls and any(call.server_label is not None for call in message.tool_calls)
        else message
        for message in messages
    ]


def with_notice(messages: Sequence[Message], notice: str) -> list[Message]:
    """The messages with ``notice`` at the end of the system message; one is added if there is none."""
    first, *others = messages
    if first.role != "system" or isinstance(first.content, list):
        return [Message(role="system", content=notice), *messages]
    content = f"{first.text}\n\n{notice}".strip()
    return [first.model_copy(update={"content": content}), *others]


def _renamed(call: HistoryCall, names: Mapping[tuple[str, str], str]) -> HistoryCall:
    if call.function is None or call.server_label is None:
        return call
    name = names.get((call.server_label, call.function.name), call.function.name)
    return call.model_copy(update={"function": call.function.model_copy(update={"name": name})})


def _uniquely_named(
    tools: Sequence[HostedTool], items: Sequence[Mapping[str, Any]]
) -> tuple[HostedTool, ...]:
    """The tools; one whose name another tool of the request has gets its server's label as a prefix."""
    described = [item.get(kind) for item in items for kind in ("function", "custom")]
    taken = {str(one.get("name")) for one in described if isinstance(one, Mapping)}
    named: list[HostedTool] = []
    for one in tools:
        tool, name, number = one, one.function_name, 1
        while name in taken:
            prefixed = re.sub(r"\W", "_", f"{tool.server}_{tool.function_name}", flags=re.ASCII)
            name = prefixed[:_MAX_NAME] if number == 1 else f"{prefixed[: _MAX_NAME - 4]}_{number}"
            number += 1
        taken.add(name)
        if name != tool.function_name:
            function = {**tool.definition["function"], "name": name}
            tool = replace(one, definition={**one.definition, "function": function})
        named.append(tool)
    return tuple(named)


def _choice(choice: Any, hosted: HostedTools) -> Any:
    """``tool_choice`` with functions instead of hosted tools. Raises `BadRequest`."""
    if not isinstance(choice, ToolChoice):
        return choice
    if choice.type in hosted.types:
        chosen = _functions(choice.model_dump(), hosted, "tool_choice")
        if len(chosen) == 1:
            return ToolChoice.model_validate(chosen[0])
        allowed: Any = {"mode": "required", "tools": chosen}
        return ToolChoice.model_validate({"type": "allowed_tools", "allowed_tools": allowed})
    if choice.allowed_tools is None:
        return choice
    entries = choice.allowed_tools.tools
    if not any(is_hosted(entry, hosted) for entry in entries):
        return choice
    tools: list[dict[str, Any]] = []
    for n, entry in enumerate(entries):
        place = f"tool_choice.allowed_tools.tools[{n}]"
        tools += _functions(entry, hosted, place) if is_hosted(entry, hosted) else [entry]
    allowed = {"mode": choice.allowed_tools.mode, "tools": tools}
    return ToolChoice.model_validate({"type": choice.type, "allowed_tools": allowed})


def _functions(entry: Mapping[str, Any], hosted: HostedTools, place: str) -> list[dict[str, Any]]:
    """The tools that an entry such as ``{"type": "mcp", "server_label", "name"}`` names, as functions."""
    kind, label, name = entry["type"], entry.get("server_label"), entry.get("name")
    found = [
        {"type": "function", "function": {"name": tool.function_name}}
        for tool in hosted.tools
        if kind.startswith(tool.kind)
        and (label is None or tool.server == label)
        and (name is None or tool.name == name)
    ]
    if not found:
        named = ", ".join(str(part)[:64] for part in (kind, label, name) if part is not None)
        raise BadRequest(f"{place} names no tool that is offered: {named}.", place)
    return found
