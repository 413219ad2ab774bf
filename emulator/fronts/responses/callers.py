"""Who calls a tool, on the wire: ``allowed_callers`` of tools, ``caller`` of call items, ids of programs.

Source: OpenAI's guide "Programmatic Tool Calling". A program's ``call_id`` is the core's id with a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.core.errors import BadRequest

PROGRAMS = "programmatic_tool_calling"
"""The type of the item with which a client allows programs, and sees them."""
_CALLERS = {"direct": "direct", "programmatic": "program"}
_CALL_ID, _PROGRAM = "call_", "prog_"


def chat_callers(tool: Mapping[str, Any], place: str) -> list[str]:
    """Who may call a tool, as the core names them; by default the model alone. Raises `BadRequest`."""
    inside = tool.get(str(tool.get("type")))
    allowed = (inside if isinstance(inside, Mapping) else tool).get("allowed_callers")
    if allowed is None:
        return ["direct"]
    known = isinstance(allowed, list) and all(one in [*_CALLERS] for one in allowed)
    if not (known and allowed):
        place = f"{place}.allowed_callers"
        raise BadRequest(f"{place} must be a list of direct, programmatic or both.", place)
    return [_CALLERS[one] for one in allowed]


def wire_id(program: str) -> str:
    """Return the ``call_id`` of a program."""
    return f"{_CALL_ID}{program}"


def program_of(call_id: str) -> str:
    """Return the core's id of the program with this ``call_id``."""
    return call_id.removeprefix(_CALL_ID)


def caller_fields(caller: str) -> dict[str, Any]:
    """Return the field of a call item that names the program that calls; cells are not named."""
    if not caller.startswith(_PROGRAM):
        return {}
    return {"caller": {"type": "program", "caller_id": wire_id(caller)}}


def caller_of(field: Any) -> str | None:
    """Return the core's id of the program that a call item names as its caller."""
    key = field.get("caller_id") if isinstance(field, Mapping) else None
    return program_of(key) if isinstance(key, str) and field.get("type") == "program" else None
