"""The tools that one MCP server lists: which can be offered, and why the others are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.core import json_codec
from emulator.core.cached_property import cached_property
from emulator.tools.schema import SchemaError, guard
from emulator.tools.tool_items import read_item

MAX_TOOLS = 256
MAX_CHARACTERS = 2**20
"""Of all tools of a server together, as JSON."""
_MAX_NAME = 64
"""Characters of a function's name that every model server accepts."""

ListedTool = Mapping[str, Any]
"""As in ``mcp_list_tools``: name, description, input_schema, annotations; and ``output_schema`` if known."""


@dataclass(frozen=True)
class Listing:
    """What a server listed, or what the history says that it listed."""

    listed: Sequence[ListedTool]

    @property
    def tools(self) -> tuple[ListedTool, ...]:
        """The tools that can be offered."""
        return self._checked[0]

    @property
    def problems(self) -> tuple[str, ...]:
        """Why other tools are left out, a line each."""
        return self._checked[1]

    @cached_property
    def _checked(self) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
        tools: dict[str, ListedTool] = {}
        problems: list[str] = []
        characters = 0
        for n, tool in enumerate(self.listed):
            name = str(tool.get("name"))
            try:
                definition = function(tool)
                guard(definition, f"tools[{n}]")
                characters += len(json_codec.dumps(definition))
                if len(tools) == MAX_TOOLS or characters > MAX_CHARACTERS:
                    omitted = len(self.listed) - n
                    problems.append(
                        f"{omitted} tools are left out: a server may list {MAX_TOOLS} tools with"
                        f" {MAX_CHARACTERS} characters"
                    )
                    break
                if not isinstance(tool.get("name"), str):
                    raise SchemaError("a tool's name must be text", "name")
                if name in tools:
                    raise SchemaError("another tool has the same name", "name")
                read_item(definition, f"tools[{n}]", ())
            except SchemaError as error:
                place = error.param.removeprefix(f"tools[{n}].function.")
                problems.append(f"{name[:128]!r} is left out: {place}: {error.message}")
            else:
                tools[name] = tool
        return tuple(tools.values()), tuple(problems)


def hints(tool: ListedTool) -> Mapping[str, Any]:
    """The tool's annotations."""
    annotations = tool.get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}


def function(tool: ListedTool, description: str = "") -> dict[str, Any]:
    """The tool as a function in chat's shape; ``description`` is of its server."""
    texts = [text for text in (tool.get("description"), description) if text]
    inside: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", str(tool.get("name")))[:_MAX_NAME],
        "description": "\n\n".join(map(str, texts)),
        "parameters": tool.get("input_schema"),
    }
    for key in ("annotations", "output_schema"):
        if isinstance(tool.get(key), Mapping):
            inside[key] = tool[key]
    return {"type": "function", "function": inside}
