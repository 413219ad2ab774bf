"""Convert a shell command between text and a list of words, whichever the tool takes.

Agents' prompts teach both: ``"ls -l"`` is ``["bash", "-lc", "ls -l"]``. Knows nothing of how a call
was written.
"""

from __future__ import annotations

import shlex
from typing import Any

from emulator.command_tools import COMMAND_PARAMETERS, COMMAND_TOOLS
from emulator.tools.tool import Tool

_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh"})
_RUN = frozenset({"-c", "-lc", "-cl"})


def convert_command(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, with a command in the form that the command tool takes."""
    if tool.name.lower() not in COMMAND_TOOLS:
        return arguments
    properties = tool.parameters.get("properties") or {}
    types = {
        name: schema.get("type") if isinstance(schema, dict) else None
        for name, schema in properties.items()
        if name in COMMAND_PARAMETERS
    }
    return {
        name: _convert(value, types[name]) if name in types else value
        for name, value in arguments.items()
    }


def _convert(value: Any, kind: Any) -> Any:
    match value:
        case str() if kind == "array" and not value.lstrip().startswith("["):
            return ["bash", "-lc", value]
        case [str(shell), str(run), str(script)] if (
            kind == "string" and shell in _SHELLS and run in _RUN
        ):
            return script
        case [_, *_] if kind == "string" and all(isinstance(word, str) for word in value):
            return shlex.join(value)
    return value
