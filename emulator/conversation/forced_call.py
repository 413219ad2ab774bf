"""The call of the only function that a reply may call and must call, written as the object of its arguments.

Clients that want structured output force such a call, and a model that is asked for JSON writes the object,
alone or with words, in a fence, or as ``result = {...}``. Under a forced choice these are no answer, so a
reply without any other call is searched for the object. An object that is a call in one of the usual forms,
``{"name": ..., "arguments": ...}``, stays one, unless only the whole object fits the parameters.

If several functions may be called, a reply that is one object and nothing else is the call of the only
function whose schema accepts it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from emulator.conversation.answer_format import last_object
from emulator.reading.calls import call_statement, find_calls
from emulator.reading.loose_json import objects
from emulator.reading.statements import Statement, Unreadable
from emulator.reading.tool_names import ToolNames, cached_tool_names
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset


def only_fitting_call(text: str, toolset: Toolset) -> ForcedCall | None:
    """The call of the only function whose parameters fit the object that ``text`` is."""
    fenced = _FENCED.fullmatch(text)
    try:
        found = objects(fenced["object"]) if fenced else []
    except Unreadable:
        return None
    if len(found) != 1:
        return None
    calls = [ForcedCall(tool, toolset) for tool in toolset.tools if tool.kind == "function"]
    fitting = [call for call in calls if call.is_made_by(found[0].value)]
    return fitting[0] if len(fitting) == 1 else None


_FENCED = re.compile(r"\s*(?:```\w*\s*)?(?P<object>\{.*\})\s*(?:```\s*)?", re.DOTALL)


@dataclass(frozen=True)
class ForcedCall:
    """A call of ``tool``, which is one of ``toolset``."""

    tool: Tool
    toolset: Toolset

    @property
    def names(self) -> ToolNames:
        return cached_tool_names(self.toolset.spellings, self.toolset.constructors, forced=True)

    def has_arguments(self, text: str) -> bool:
        """Return True if ``text`` has objects, and none of them is a call."""
        try:
            found = objects(text)
        except Unreadable:
            return False
        return bool(found) and all(self._are_arguments(one.value) for one in found)

    def is_made_by(self, value: Any) -> bool:
        """Return True if ``value`` is an object of valid arguments, and no call itself."""
        return self._are_arguments(value) and self._fits(value)

    def statement(self, text: str) -> Statement | None:
        """The call that ``text`` means; None if it has no object. Raises `Unreadable`."""
        found = [one for one in objects(text) if self._are_arguments(one.value)]
        if not found:
            return None
        chosen = last_object(found, self._bind)
        return call_statement(self.tool.python_name, chosen.value, self.names, chosen.line)

    def _are_arguments(self, value: Any) -> bool:
        calls = list(find_calls(value, self.names))
        if any(self.names.find(name) and self._fits(written) for name, written in calls):
            return False
        # Where nothing is declared, a call of an unknown function fits, too.
        declared = {parameter.name for parameter in self.tool.arguments}
        has_parameters = declared.issuperset(map(self.tool.wire_name, value))
        return not calls or (has_parameters and self._fits(value))

    def _fits(self, arguments: Any) -> bool:
        try:
            self._bind(arguments)
        except BindError:
            return False
        return True

    def _bind(self, arguments: Any) -> None:
        """Raises `BindError`."""
        is_object = isinstance(arguments, dict)
        args, kwargs = ([], arguments) if is_object else ([arguments], {})
        self.toolset.bind(self.tool.python_name, args, kwargs)
