"""Convert the tools of a Messages request to chat tools.

A tool with an ``input_schema`` is a function. Tools that Anthropic defines and the client runs
(`CLIENT_TOOLS`) become functions with a schema from here. ``code_execution`` is the code interpreter. Any
other tool is a hosted one: the core removes it and reports that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.conversation.call_policy import INTERPRETER
from emulator.conversation.deferred_tools import LOADED, SEARCH_TYPE
from emulator.conversation.tool_search import BM25_SEARCH, REGEX_SEARCH
from emulator.core.errors import BadRequest
from emulator.fronts.anthropic.code_calls import caller_type, is_code_execution

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_VERSION = re.compile(r"_20\d{6}$")


def _object(required: Sequence[str], **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [*required]}


def _commands(*names: str) -> Json:
    return {"type": "string", "enum": [*names]}


# Names and arguments: Anthropic's documentation of each tool ("Bash tool", "Text editor tool" ...).
CLIENT_TOOLS: Mapping[str, tuple[str, Json]] = {
    "bash": (
        "Run a command in a persistent bash session and return its output.",
        _object(
            [],
            command={"type": "string", "description": "The command to run."},
            restart={"type": "boolean", "description": "True to restart the session instead."},
        ),
    ),
    "text_editor": (
        "View, create and edit text files. str_replace needs an exact, unique match of old_str.",
        _object(
            ["command", "path"],
            command=_commands("view", "create", "str_replace", "insert"),
            path={"type": "string", "description": "Absolute path of a file or folder."},
            view_range={
                "type": "array",
                "items": {"type": "integer"},
                "description": "For view: first and last line, -1 for the end.",
            },
            file_text={"type": "string", "description": "For create: the whole content."},
            old_str={"type": "string", "description": "For str_replace: what to replace."},
            new_str={"type": "string", "description": "For str_replace: what to put there."},
            insert_line={"type": "integer", "description": "For insert: the line to insert after."},
            insert_text={"type": "string", "description": "For insert: what to insert."},
        ),
    ),
    "memory": (
        "Keep notes in files below /memories from one conversation to the next.",
        _object(
            ["command"],
            command=_commands("view", "create", "str_replace", "insert", "delete", "rename"),
            path=_TEXT,
            view_range={"type": "array", "items": {"type": "integer"}},
            file_text=_TEXT,
            old_str=_TEXT,
            new_str=_TEXT,
            insert_line={"type": "integer"},
            insert_text=_TEXT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""Type without its version -> the description for the model, and the schema of the arguments."""


def chat_tools(tools: Sequence[Mapping[str, Any]], container: str | None) -> list[Json]:
    """Convert ``tools``; ``container`` is the id of the one that the request names. Raises `BadRequest`.

    Code may call all functions, unless one of them names code as a caller: then only those that do.
    """
    has_callers = bool(code_caller(tools))
    converted = [_tool(tool, f"tools[{n}]", container) for n, tool in enumerate(tools)]
    for n, tool in enumerate(tools):
        if has_callers and converted[n]["type"] == "function":
            converted[n]["callers"] = _callers(tool, f"tools[{n}]")
    is_searched_here = any(tool["type"] == SEARCH_TYPE for tool in converted)
    is_deferring = any(tool.get("defer_loading") or tool.get("deferred_tools") for tool in tools)
    if is_deferring and not is_searched_here:
        converted.append({"type": SEARCH_TYPE, "execution": "client"})
    return converted


def code_caller(tools: Sequence[Mapping[str, Any]]) -> str:
    """How blocks name code as a caller; "" if no function names code as one. Raises `BadRequest`."""
    for n, tool in enumerate(tools):
        kind = tool.get("type") or "custom"
        is_function = kind == "custom" or _VERSION.sub("", str(kind)) in CLIENT_TOOLS
        place = f"tools[{n}]"
        if is_function and "program" in _callers(tool, place):
            if caller := caller_type(tools):
                return caller
            place = f"{place}.allowed_callers"
            raise BadRequest(f"{place}: there is no code_execution tool in tools.", place)
    return ""


def _callers(tool: Mapping[str, Any], place: str) -> list[str]:
    """Who may call the tool, as the core names them."""
    allowed = tool.get("allowed_callers")
    allowed = ["direct"] if allowed is None else allowed
    valid = isinstance(allowed, list) and all(
        one == "direct" or is_code_execution(one) for one in allowed
    )
    if not (valid and allowed):
        place = f"{place}.allowed_callers"
        raise BadRequest(f"{place} must be a list of direct and code_execution_*.", place)
    return ["direct" if one == "direct" else "program" for one in allowed]


def _tool(tool: Mapping[str, Any], place: str, container: str | None) -> Json:
    kind = str(tool.get("type") or "custom")
    family = _VERSION.sub("", kind)
    if kind == "custom":
        if tool.get("input_schema") is None:
            raise BadRequest(f"{place}.input_schema is missing.", param=f"{place}.input_schema")
        function = {"parameters": tool["input_schema"]}
        if tool.get("description") is not None:
            function["description"] = tool["description"]
    elif family in CLIENT_TOOLS:
        description, parameters = CLIENT_TOOLS[family]
        function = {"parameters": parameters, "description": description}
    elif is_code_execution(kind):
        return {"type": INTERPRETER, "container": container or {"type": "auto"}}
    elif family in (REGEX_SEARCH, BM25_SEARCH):
        return {"type": SEARCH_TYPE, "name": family}
    else:
        return {**tool, "type": kind}
    if tool.get("defer_loading") in (True, LOADED):
        function["defer_loading"] = tool["defer_loading"]
    if tool.get("input_examples") is not None:
        function["input_examples"] = tool["input_examples"]
    return {"type": "function", "function": {"name": tool.get("name"), **function}}
