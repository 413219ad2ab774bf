"""Values that mean a command or a patch although they name no function. Knows nothing of text or streams."""

from __future__ import annotations

import re
from typing import Any

from emulator.command_tools import COMMAND_PARAMETERS
from emulator.reading.tool_names import WrittenNames

PATCH = re.compile(r"^\*\*\* Begin Patch[ \t]*\n.*?^\*\*\* End Patch\b", re.DOTALL | re.MULTILINE)

#: What may stand beside a command.
_BESIDE = frozenset(
    "workdir cwd timeout timeout_ms justification with_escalated_permissions sandbox_permissions".split()
)


def command_in(value: dict[str, Any], names: WrittenNames) -> tuple[str, Any] | None:
    """The call that ``{"command": ["bash", "-lc", "ls"]}`` means, where one tool of commands is offered."""
    keys = sorted(COMMAND_PARAMETERS & value.keys())
    if len(keys) != 1 or value.keys() - COMMAND_PARAMETERS - _BESIDE:
        return None
    command = value[keys[0]]
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    if names.patch and (found := PATCH.search("\n".join(command))):
        return names.patch, [found.group()]
    return (names.command, value) if names.command and command else None
