"""Names of functions as other servers accept them.

OpenAI's API reference allows letters, digits, underscores and dashes, and servers check it. A tool of a
namespace (``crm.find``) has a full stop, and a chat's own name may have one. Such a tool is sent under
another name, and its calls come back under that. Letters of other alphabets stay: many servers accept them,
and a name without them says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import Any

Json = dict[str, Any]
_ACCEPTED = re.compile(r"[\w-]*")


class SentNames:
    """The names of one request."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """``names`` are those of all tools of the request."""
        self._sent: dict[str, str] = {}
        taken = {*names}
        for name in sorted(name for name in taken if not _ACCEPTED.fullmatch(name)):
            plain = _plain(name)
            tried = chain([plain], (f"{plain}_{n}" for n in count(2)))
            self._sent[name] = next(one for one in tried if one not in taken)
            taken.add(self._sent[name])

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
    return re.sub(r"[^\w-]", "_", name)
