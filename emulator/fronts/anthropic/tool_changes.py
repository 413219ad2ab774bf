"""Tools that a client adds and removes during a conversation: the blocks ``tool_addition`` and
``tool_removal``.

They are in the system messages. The ``compaction`` block that replaces messages repeats their changes, so
that an added tool stays and a removed one does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.conversation.deferred_tools import LOADED
from emulator.core.errors import BadRequest
from emulator.core.protocol import Message
from emulator.fronts.anthropic.code_calls import Content
from emulator.fronts.anthropic.parts import mapping

Json = dict[str, Any]

ADDITION, REMOVAL = "tool_addition", "tool_removal"


@dataclass(frozen=True)
class ChangedTools:
    """The tools of a request with those that its messages add."""

    tools: list[Json]
    removed: list[str]
    """The names of the tools, or of their servers, that are removed at the end."""
    places: Mapping[str, str]
    """The place of each added tool in ``tools`` -> in the request."""


def tool_changes(contents: Iterable[Content], start: int = 0) -> Iterator[tuple[str, Any]]:
    """The changes in the contents of the messages, with their places; ``start`` is the first message's."""
    for n, content in enumerate(contents, start):
        for m, block in enumerate(() if isinstance(content, str) else content):
            place = f"messages[{n}].content[{m}]"
            if block.get("type") in (ADDITION, REMOVAL):
                yield place, block
            elif block.get("type") == "compaction":
                repeated = block.get("tool_changes")
                for k, change in enumerate(repeated if isinstance(repeated, list) else ()):
                    yield f"{place}.tool_changes[{k}]", change


def offered_tools(tools: Sequence[Json], changes: Iterable[tuple[str, Any]]) -> ChangedTools:
    """Raises `BadRequest` for a change that names no tool, and for a tool whose type is none."""
    known = {str(tool.get("name")) for tool in tools}
    offered = [*tools]
    removed: set[str] = set()
    places: dict[str, str] = {}
    for place, change in changes:
        name, tool = changed_tool(change, place), mapping(change["tool"])
        definition = tool.get("definition")
        if tool.get("type") == "tool_reference" and name not in known:
            message = f"{place}.tool.name is {name[:64]!r}, which is no tool at this place."
            raise BadRequest(message, f"{place}.tool.name", "tool_reference_unresolved")
        if change.get("type") == REMOVAL:
            removed.add(name)
            continue
        removed.discard(name)
        if isinstance(definition, dict) and name not in known:
            known.add(name)
            places[f"tools[{len(offered)}]"] = f"{place}.tool.definition"
            offered.append({**definition, "defer_loading": LOADED})
    for n, tool in enumerate(offered):
        if not isinstance(tool.get("type"), str | None):
            place = f"tools[{n}]"
            place = f"{places.get(place, place)}.type"
            raise BadRequest(f"{place} must be text.", place)
    return ChangedTools(offered, sorted(removed), places)


def change_message(change: Any, place: str) -> Message:
    """What the model sees at the place of a change."""
    name = changed_tool(change, place)
    if change.get("type") == ADDITION:
        return Message(role="system", content="", found_tools=[name])
    return Message(role="system", content=f"{name} can no longer be called.")


def changed_tool(change: Any, place: str) -> str:
    """The name of the tool, or of the server, that a change names. Raises `BadRequest`."""
    tool = mapping(mapping(change).get("tool"))
    fields = {**tool, **mapping(tool.get("definition"))}
    names = (fields.get(name) for name in ("name", "server_name", "mcp_server_name"))
    name = next(filter(None, names), None)
    if not isinstance(name, str):
        raise BadRequest(f"{place}.tool must name a tool or a server.", f"{place}.tool")
    return name
