"""Load a deferred tool before its first call, as OpenAI does.

A model may call a listed tool without a search, but the Agents SDK for JavaScript refuses a call of a tool
that no ``tool_search_output`` of its run contains. So a search by ``paths`` precedes such a call; the model's
history does not show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from emulator.conversation.deferred_tools import SEARCH_TYPE
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    CallStarted,
    HostedCallFinished,
    HostedCallStarted,
    ToolCall,
    new_id,
)
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.tools import chat_names, deferred_names
from emulator.hosted.hosted_tool import HostedTools


def with_loads(
    events: Iterable[AnswerEvent], tools: Sequence[Json], items: Sequence[Json], hosted: HostedTools
) -> Iterator[AnswerEvent]:
    """Insert the searches that the answer to ``items`` lacks. A found tool of a server becomes its label."""
    unloaded = deferred_names(tools) - _loaded_names(items)
    servers = {tool.function_name: tool.server for tool in hosted.tools}
    for event in events:
        if isinstance(event, HostedCallFinished) and event.found:
            found = dict.fromkeys(servers.get(name) or name for name in event.found)
            unloaded -= found.keys()
            yield replace(event, found=(*found,))
            continue
        if (name := _called_name(event)) in unloaded:
            unloaded.remove(name)
            key = new_id("call_")
            yield HostedCallStarted(key, "tool_search", "", SEARCH_TYPE, {"paths": [name]})
            yield HostedCallFinished(key, "", found=(name,))
        yield event


def _called_name(event: AnswerEvent) -> str:
    """The name of the called tool, or the label of its server; "" for other events."""
    match event:
        case CallStarted(name=name) | ToolCall(name=name):
            return name
        case HostedCallStarted(server=label) | ApprovalRequested(server=label):
            return label
    return ""


def _loaded_names(items: Sequence[Json]) -> set[str]:
    """The names of the tools that were loaded since the user's last message, where a client's run starts."""
    loaded: set[str] = set()
    for item in items:
        if item.get("role") == "user":
            loaded.clear()
        elif item["type"] == "tool_search_output" and isinstance(item.get("tools"), list):
            loaded.update(n for t in item["tools"] if isinstance(t, dict) for n in chat_names(t))
    return loaded
