"""Names of functions as other servers accept them.

OpenAI's API reference allows letters, digits, underscores and dashes, and servers check it. A tool of a
namespace (``crm.find``) has a full stop, and a chat's own name may have one. Such a tool is sent under its
Python name, and its calls come back under it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from emulator.tools.toolset import Toolset

Json = dict[str, Any]
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]*")


class SentNames:
    def __init__(self, toolset: Toolset) -> None:
        self._sent = {
            tool.name: _plain(tool.python_name)
            for tool in toolset.tools
            if not _ACCEPTED.fullmatch(tool.name)
        }

    def of(self, name: str) -> str:
        """The name under which a function is sent, offered or only in the history."""
        return self._sent.get(name) or _plain(name)

    def in_tool(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """A tool, a choice of one, or a call, with the function's name as it is sent."""
        function = item.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or _ACCEPTED.fullmatch(name):
            return item
        return {**item, "function": {**item["function"], "name": self.of(name)}}

    def in_choice(self, choice: Any) -> Any:
        """``tool_choice``."""
        if not isinstance(choice, Mapping):
            return choice
        allowed = choice.get("allowed_tools")
        if not isinstance(allowed, Mapping):
            return self.in_tool(choice)
        tools = [*map(self.in_tool, allowed.get("tools") or ())]
        return {**choice, "allowed_tools": {**allowed, "tools": tools}}

    def in_message(self, message: Json) -> Json:
        calls = message.get("tool_calls")
        return message | {"tool_calls": [*map(self.in_tool, calls)]} if calls else message


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
