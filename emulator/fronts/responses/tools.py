"""Convert the tools of a Responses request to chat tools, and their calls back to call items.

A namespace is flattened: the tool ``find`` of the namespace ``crm`` becomes ``crm.find``. The tools of the
table `CLIENT_TOOLS` (``local_shell``, ``shell``, ``apply_patch``), which the client runs, are functions to
the model. Knows nothing of messages or answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from emulator.conversation.deferred_tools import LOADED, SEARCH_TYPE
from emulator.core.errors import BadRequest
from emulator.fronts.responses.callers import PROGRAMS, chat_callers
from emulator.fronts.responses.items import Json

CALLABLE = ("function", "custom")


@dataclass(frozen=True)
class ClientTool:
    """A tool that OpenAI defines and the client runs."""

    description: str
    parameters: Json
    call_type: str
    fields: Callable[[Mapping[str, Any]], Json]
    """Converts a call's arguments, which fit ``parameters``, to the fields of its item."""


def _exec(arguments: Mapping[str, Any]) -> Json:
    known: Json = {"env": {}, "timeout_ms": None, "user": None, "working_directory": None}
    return {"action": {"type": "exec", **known, **arguments}}


def _commands(arguments: Mapping[str, Any], environment: Json | None = None) -> Json:
    missing = {name: None for name in ("timeout_ms", "max_output_length") if name not in arguments}
    return {"action": {**arguments, **missing}, "environment": environment or {"type": "local"}}


def container_shell(container_id: str) -> ClientTool:
    """The form of the calls of a shell that runs in a container."""
    environment = {"type": "container_reference", "container_id": container_id}
    return replace(CLIENT_TOOLS["shell"], fields=partial(_commands, environment=environment))


def _operation(arguments: Mapping[str, Any]) -> Json:
    operation = {"type": arguments["operation"], "path": arguments["path"]}
    if operation["type"] != "delete_file":
        operation["diff"] = arguments.get("diff", "")
    return {"operation": operation}


def _object(required: Sequence[str], **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


_MS: Json = {"type": "integer", "minimum": 0, "description": "Deadline in milliseconds."}
_TEXT: Json = {"type": "string"}

# Names and meanings: OpenAI's API reference, Responses, tools of these types and their call items.
CLIENT_TOOLS: Mapping[str, ClientTool] = {
    "local_shell": ClientTool(
        "Run a program on the user's machine and return its output.",
        _object(
            ["command"],
            command={
                "type": "array",
                "items": _TEXT,
                "minItems": 1,
                "description": 'The program and its arguments, such as ["bash", "-lc", "ls"].',
            },
            working_directory={"type": "string", "description": "Where to run it."},
            env={"type": "object", "additionalProperties": _TEXT},
            timeout_ms=_MS,
        ),
        "local_shell_call",
        _exec,
    ),
    "shell": ClientTool(
        "Run shell commands in order and return the output of each.",
        _object(
            ["commands"],
            commands={"type": "array", "items": _TEXT, "minItems": 1},
            timeout_ms=_MS,
            max_output_length={
                "type": "integer",
                "minimum": 0,
                "description": "Most characters of output to return.",
            },
        ),
        "shell_call",
        _commands,
    ),
    "apply_patch": ClientTool(
        "Create, change or delete one file. The diff of a new file is its lines, each prefixed with +. The"
        " diff of a change consists of hunks: @@ and, optionally, a line above the change; then lines"
        " prefixed with a space (unchanged), - (removed) or + (added), without line numbers.",
        _object(
            ["operation", "path"],
            operation={"enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff={"type": "string", "description": "Not for delete_file."},
        ),
        "apply_patch_call",
        _operation,
    ),
}


CLIENT_SEARCH = ClientTool(
    "Load functions by their names, or all of a namespace by its name, so that they can be called.",
    _object(["paths"], paths={"type": "array", "items": _TEXT, "minItems": 1}),
    "tool_search_call",
    lambda arguments: {"execution": "client", "arguments": {**arguments}},
)
"""A search for tools that the client runs; it may have other words and parameters."""


@dataclass(frozen=True)
class CallForm:
    """How the calls of one tool are written as items."""

    name: str
    namespace: str | None = None
    tool: ClientTool | None = None


@dataclass(frozen=True)
class OfferedTools:
    """Tools in chat's shape. Hosted tools, which cannot run here, are unchanged."""

    tools: tuple[Json, ...]
    places: tuple[str, ...]
    """The place of each in the client's request: ``tools[2].tools[0]``."""
    forms: Mapping[str, CallForm]
    """The forms of tools whose calls are not plain, by their name in chat."""
    shows_programs: bool = False


def check_has_type(tool: Any, place: str) -> None:
    """Check that ``tool`` is an object with a type. Raises `BadRequest`."""
    if not isinstance(tool, dict):
        raise BadRequest(f"{place} must be an object.", place)
    if not isinstance(tool.get("type"), str):
        raise BadRequest(f"{place}.type must be the type of the tool.", f"{place}.type")


def to_chat_tools(tools: Sequence[Json], added: Sequence[AddedTool] = ()) -> OfferedTools:
    """Convert ``tools``, as the client sent them or as a response echoes them, and those that items added.
    Raises `BadRequest`."""
    placed = [*((f"tools[{n}]", tool) for n, tool in enumerate(tools)), *added]
    tools = [tool for _, tool in placed]
    chat_tools: list[Json] = []
    places: list[str] = []
    forms: dict[str, CallForm] = {}
    is_searched_here = any(t.get("type") == SEARCH_TYPE and not is_client_search(t) for t in tools)
    shows_programs = any(tool.get("type") == PROGRAMS for tool in tools)

    def add(place: str, tool: Json, chat_tool: Json) -> None:
        callers = {"callers": chat_callers(tool, place)} if shows_programs else {}
        chat_tools.append({**chat_tool, **callers})
        places.append(place)

    for place, tool in placed:
        kind = str(tool.get("type"))
        if kind == "namespace":
            for inner_place, inner, form in _members(tool, place):
                add(inner_place, inner, inner)
                forms[qualified(form.namespace, form.name)] = form
        elif kind in CLIENT_TOOLS and _runs_at_client(tool):
            forms[kind] = CallForm(kind, tool=CLIENT_TOOLS[kind])
            add(place, tool, _function(kind, CLIENT_TOOLS[kind]))
        elif is_client_search(tool):
            forms[kind] = CallForm(kind, tool=CLIENT_SEARCH)
            own = {field: tool[field] for field in ("description", "parameters") if tool.get(field)}
            function = _function(kind, CLIENT_SEARCH)["function"] | own
            add(place, tool, {"type": "function", "function": function})
            add(place, tool, tool)
        elif kind != PROGRAMS:
            if is_searched_here and kind == "function" and tool.get("defer_loading") is True:
                name = str(tool.get("name"))
                forms[name] = CallForm(name, namespace=name)
            add(place, tool, nested(tool))
    return OfferedTools(tuple(chat_tools), tuple(places), forms, shows_programs)


def nested(tool: Json) -> Json:
    """Convert a tool to chat's shape, in which its description is nested under its type, and nothing null."""
    kind = tool.get("type")
    if kind not in CALLABLE or kind in tool:
        return tool
    fields = {name: value for name, value in tool.items() if name != "type" and value is not None}
    return {"type": kind, kind: fields}


def qualified(namespace: Any, name: Any) -> Any:
    """Return the name in chat of a tool in a namespace. OpenAI's plain tool names contain no full stop.

    The namespace of a deferred function outside of namespaces is its own name.
    """
    inside = isinstance(namespace, str) and namespace and namespace != name
    return f"{namespace}.{name}" if inside else name


def is_client_search(item: Mapping[str, Any]) -> bool:
    """Return True for a tool search that the client runs, or an item of one."""
    return str(item.get("type")).startswith(SEARCH_TYPE) and item.get("execution") == "client"


AddedTool = tuple[str, Json]
"""A tool that an item added, and its place: ``input[2].tools[0]``."""


def added_tools(items: Sequence[Json], tools: Sequence[Json], place: str) -> list[AddedTool]:
    """Return the tools that ``items``, at ``place``, add to ``tools``; those of a client's search are
    `LOADED`. Raises `BadRequest`."""
    known = {name for tool in tools for name in chat_names(tool)}
    added: list[AddedTool] = []
    for n, item in enumerate(items):
        listed = item.get("tools") if item["type"] in _TOOL_ITEMS else None
        for m, tool in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(tool, dict):
                continue
            own_place = f"{place}[{n}].tools[{m}]"
            check_has_type(tool, own_place)
            new = {*chat_names(tool)} - known
            known |= new
            found = found_tools([tool], new)
            added += [(own_place, _loaded(a) if is_client_search(item) else a) for a in found]
    return added


def _loaded(tool: Json) -> Json:
    members = {"tools": [*map(_loaded, _objects(tool.get("tools")))]} if "tools" in tool else {}
    return {**tool, **members, "defer_loading": LOADED}


def chat_names(tool: Json) -> list[str]:
    """The names in chat of a tool, or of a namespace's members; a server's label."""
    return [name for name, _ in _named_tools(tool)]


def deferred_names(tools: Sequence[Json]) -> set[str]:
    """The names in chat of the tools that a request's tool search defers."""
    if all(tool.get("type") != SEARCH_TYPE for tool in tools):
        return set()
    named = (one for tool in tools for one in _named_tools(tool))
    return {name for name, fields in named if fields.get("defer_loading") is True}


def _named_tools(tool: Json) -> Iterator[tuple[str, Json]]:
    if tool.get("type") == "namespace":
        for member in _objects(tool.get("tools")):
            yield str(qualified(tool.get("name"), member.get("name"))), member
    else:
        inside = tool.get(str(tool.get("type")))
        fields = inside if isinstance(inside, dict) else tool
        yield str(fields.get("name") or fields.get("server_label") or tool.get("type")), fields


def found_tools(tools: Sequence[Json], names: Collection[str]) -> list[Json]:
    """Return those of a request's tools whose names in chat are ``names``, namespaces with only these."""
    found: list[Json] = []
    for tool in tools:
        if tool.get("type") == "namespace":
            members = [
                member
                for member in _objects(tool.get("tools"))
                if qualified(tool.get("name"), member.get("name")) in names
            ]
            found += [{**tool, "tools": members}] if members else []
        elif any(name in names for name in chat_names(tool)):
            found.append(tool)
    return found


def _objects(value: Any) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


_TOOL_ITEMS = ("additional_tools", "tool_search_output")


def _members(namespace: Json, place: str) -> Iterator[tuple[str, Json, CallForm]]:
    name, purpose = namespace.get("name"), namespace.get("description")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"{place}.name must be the name of the namespace.", f"{place}.name")
    members = namespace.get("tools")
    for n, member in enumerate(members if isinstance(members, list) else ()):
        if not isinstance(member, dict) or member.get("type", "function") not in CALLABLE:
            continue
        tool = nested({"type": "function", **member})
        inside = tool[tool["type"]]
        if not isinstance(inside, dict):
            continue
        own_name = inside.get("name")
        if not isinstance(own_name, str) or not own_name:
            yield f"{place}.tools[{n}]", tool, CallForm("")  # the core refuses it
            continue
        inside = {**inside, "name": qualified(name, own_name)}
        if n == 0 and isinstance(purpose, str) and purpose:
            # The namespace's description appears once, in its first tool.
            own = inside.get("description")
            inside["description"] = f"{own}\n\n({name}: {purpose})" if own else f"{name}: {purpose}"
        yield f"{place}.tools[{n}]", {**tool, tool["type"]: inside}, CallForm(own_name, name)


def _runs_at_client(tool: Json) -> bool:
    """Return True for a ``shell`` that the client runs; OpenAI can also run one in a container."""
    environment = tool.get("environment")
    return not isinstance(environment, dict) or environment.get("type") == "local"


def _function(name: str, tool: ClientTool) -> Json:
    function = {"name": name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
