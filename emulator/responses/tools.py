"""The tools of a Responses request as chat has them, and the calls of those that have items of their own.

A namespace is flattened: its tools are called ``crm.find``, say. ``local_shell``, ``shell`` and
``apply_patch``, which the client runs, are functions to the model; the table `CLIENT_TOOLS` says which. Knows
nothing of messages or of what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.responses.items import Json

CALLABLE = ("function", "custom")


@dataclass(frozen=True)
class ClientTool:
    """A tool that OpenAI defines and the client runs."""

    description: str
    parameters: Json
    call_type: str
    prefix: str
    """Of the ids of its call items."""
    fields: Callable[[Mapping[str, Any]], Json]
    """A call's arguments, which fit ``parameters``, as the fields of its item."""


def _exec(arguments: Mapping[str, Any]) -> Json:
    known: Json = {"env": {}, "timeout_ms": None, "user": None, "working_directory": None}
    return {"action": {"type": "exec", **known, **arguments}}


def _commands(arguments: Mapping[str, Any]) -> Json:
    known = {"timeout_ms": None, "max_output_length": None}
    return {"action": {**known, **arguments}, "environment": {"type": "local"}}


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
        "lsh_",
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
        "sh_",
        _commands,
    ),
    "apply_patch": ClientTool(
        "Create, change or delete one file. The diff of a new file is its lines, each behind a +. That of a"
        " change has hunks: @@ and an optional line that stands above, then lines behind a space (kept),"
        " - (removed) or + (added), without line numbers.",
        _object(
            ["operation", "path"],
            operation={"enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff={"type": "string", "description": "Not for delete_file."},
        ),
        "apply_patch_call",
        "apc_",
        _operation,
    ),
}


@dataclass(frozen=True)
class CallForm:
    """How calls of one tool are told."""

    name: str
    namespace: str | None = None
    tool: ClientTool | None = None


@dataclass(frozen=True)
class Offer:
    """Tools in chat's shape; hosted ones, which nobody can run here, as they came."""

    tools: tuple[Json, ...]
    places: tuple[str, ...]
    """Where the client sent each: ``tools[2].tools[0]``."""
    forms: Mapping[str, CallForm]
    """By the name that chat has for a tool, where the client has another."""


def offer(tools: Sequence[Json]) -> Offer:
    """Reads ``tools`` as the client sent them or as a response echoes them."""
    found: list[Json] = []
    places: list[str] = []
    forms: dict[str, CallForm] = {}
    for n, tool in enumerate(tools):
        kind = str(tool.get("type"))
        if kind == "namespace":
            for place, inner, form in _members(tool, f"tools[{n}]"):
                found.append(inner)
                places.append(place)
                forms[qualified(form.namespace, form.name)] = form
            continue
        if kind in CLIENT_TOOLS and _runs_at_client(tool):
            forms[kind] = CallForm(kind, tool=CLIENT_TOOLS[kind])
            found.append(_function(kind, CLIENT_TOOLS[kind]))
        else:
            found.append(nested(tool))
        places.append(f"tools[{n}]")
    return Offer(tuple(found), tuple(places), forms)


def nested(tool: Json) -> Json:
    """A tool in chat's shape: what describes it stands under its type."""
    kind = tool.get("type")
    if kind not in CALLABLE or kind in tool:
        return tool
    return {"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}


def qualified(namespace: Any, name: Any) -> Any:
    """The name that chat has for a tool of a namespace. No plain tool of OpenAI's has a full stop."""
    return f"{namespace}.{name}" if isinstance(namespace, str) and namespace else name


def further(items: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    """The tools that items of the input bring along, in so far as they are not among ``tools``."""
    known = {_key(tool) for tool in tools}
    found: list[Json] = []
    for item in items:
        brought = item.get("tools") if item["type"] in _BRINGING else None
        for tool in brought if isinstance(brought, list) else ():
            if isinstance(tool, dict) and _key(tool) not in known:
                known.add(_key(tool))
                found.append(tool)
    return found


_BRINGING = ("additional_tools", "tool_search_output")


def _key(tool: Json) -> tuple[str, str]:
    inside = tool.get(str(tool.get("type")))
    named = inside if isinstance(inside, dict) else tool
    return str(tool.get("type")), str(named.get("name"))


def _members(namespace: Json, place: str) -> Iterator[tuple[str, Json, CallForm]]:
    name, about = str(namespace.get("name") or ""), namespace.get("description")
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
            yield f"{place}.tools[{n}]", tool, CallForm("")  # for the core to refuse
            continue
        inside = {**inside, "name": qualified(name, own_name)}
        if n == 0 and isinstance(about, str) and about:
            # What the namespace is for is told once, where its tools begin.
            own = inside.get("description")
            inside["description"] = f"{own}\n\n({name}: {about})" if own else f"{name}: {about}"
        yield f"{place}.tools[{n}]", {**tool, tool["type"]: inside}, CallForm(own_name, name)


def _runs_at_client(tool: Json) -> bool:
    """OpenAI runs a ``shell`` in a container of its own when asked to."""
    environment = tool.get("environment")
    return not isinstance(environment, dict) or environment.get("type") == "local"


def _function(name: str, tool: ClientTool) -> Json:
    described = {"description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": {"name": name, **described}}
