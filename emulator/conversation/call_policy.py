"""Parse which tools a request offers and whether the model must call one: ``tools``, ``tool_choice``,
``parallel_tool_calls``, and their predecessors ``functions`` and ``function_call``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.core import json_codec
from emulator.core.errors import BadRequest, moved_place
from emulator.core.protocol import ChatCompletionRequest, FunctionChoice, ToolChoice
from emulator.interpreter.container_choice import ContainerChoice, container_choice
from emulator.tools.tool import Tool
from emulator.tools.toolset import SchemaError, Toolset

INTERPRETER = "code_interpreter"
"""The type of the one hosted tool that runs here."""

SUPPORTED_TYPES = frozenset({"function", "custom", INTERPRETER})
"""The types of tools that can be offered. Tools of other types run only at their vendor."""

NO_TOOLS = Toolset.parse([])


@dataclass(frozen=True)
class CallPolicy:
    """Whether and how the model must call. ``name`` is the one tool that must be called, if any."""

    required: bool = False
    name: str | None = None
    one_at_a_time: bool = False
    programs: bool = True
    """Whether a program may continue when its results arrive."""

    def __str__(self) -> str:
        return self.name or ("required" if self.required else "auto")


_FORMS = SUPPORTED_TYPES | {"allowed_tools"}


def offered_tools(request: ChatCompletionRequest) -> tuple[Toolset, CallPolicy]:
    """Return the tools that the model may call, and the policy. Raises `BadRequest` naming the place."""
    if request.functions is not None and request.tools is None:
        return _legacy(request, request.functions)
    tools = request.tools or []
    unsupported = unsupported_types(request)
    everything = _parsed(tools, unsupported)
    hosted = [tool.get("name", tool["type"]) for tool in tools if tool.get("type") in unsupported]
    choice = request.tool_choice
    one = request.parallel_tool_calls is False
    if not tools:
        if choice not in (None, "none", "auto"):
            raise BadRequest("tool_choice asks for a tool, but there are no tools.", "tool_choice")
        return everything, CallPolicy()
    if choice == "none":
        return NO_TOOLS, CallPolicy()
    if isinstance(choice, ToolChoice) and choice.type not in _FORMS:
        raise BadRequest(
            f"tool_choice.type is {choice.type[:64]!r}; expected one of {', '.join(sorted(_FORMS))}:"
            ' other tools cannot run here. The choice "required" means any tool.',
            "tool_choice.type",
            "unsupported_tool",
        )
    if isinstance(choice, ToolChoice) and choice.type == INTERPRETER:
        if interpreter_container(request) is None:
            raise BadRequest("tool_choice names a tool that is not in tools.", "tool_choice")
        return NO_TOOLS, CallPolicy(required=True)
    if not isinstance(choice, ToolChoice):
        if choice == "required" and not (everything.tools or interpreter_container(request)):
            raise _nothing_to_call("tool_choice", unsupported)
        return everything, CallPolicy(required=choice == "required", one_at_a_time=one)
    if choice.allowed_tools is not None:
        allowed = [
            _chosen(everything, entry, f"tool_choice.allowed_tools.tools[{n}]", hosted)
            for n, entry in enumerate(choice.allowed_tools.tools)
            if entry.get("type", "function") in ("function", "custom")
        ]
        required = choice.allowed_tools.mode == "required"
        if required and not (allowed or interpreter_container(request)):
            raise _nothing_to_call("tool_choice.allowed_tools.tools", unsupported)
        return _only(tools, allowed), CallPolicy(required, None, one)
    tool = _chosen(everything, choice.model_dump(), "tool_choice", hosted)
    return _only(tools, [tool]), CallPolicy(True, tool.python_name, one)


def unsupported_types(request: ChatCompletionRequest) -> tuple[str, ...]:
    """The types of tools that cannot run here (web search, for example), each once."""
    kinds = (tool.get("type") for tool in request.tools or ())
    return tuple(dict.fromkeys(k for k in kinds if isinstance(k, str) and k not in SUPPORTED_TYPES))


def _nothing_to_call(place: str, unsupported: Sequence[str]) -> BadRequest:
    types = f" ({', '.join(kind[:64] for kind in unsupported[:16])})" if unsupported else ""
    message = f"{place} asks for a tool, but none of those offered{types} can run here."
    return BadRequest(message, place, "unsupported_tool")


def interpreter_container(request: ChatCompletionRequest) -> ContainerChoice | None:
    """The code interpreter's container, if the model may use it. Raises `BadRequest`."""
    interpreters = [
        container_choice(tool.get("container"), f"tools[{n}].container")
        for n, tool in enumerate(request.tools or ())
        if tool.get("type") == INTERPRETER
    ]
    if len(interpreters) > 1:
        raise BadRequest("tools may contain only one code interpreter.", param="tools")
    choice = request.tool_choice
    if not interpreters or choice == "none":
        return None
    if isinstance(choice, ToolChoice):
        allowed = choice.allowed_tools
        types = [tool.get("type") for tool in allowed.tools] if allowed else [choice.type]
        return interpreters[0] if INTERPRETER in types else None
    return interpreters[0]


def _legacy(
    request: ChatCompletionRequest, functions: Sequence[Mapping[str, Any]]
) -> tuple[Toolset, CallPolicy]:
    """``functions`` allows one call at most: the message has room for only one."""
    if not functions:
        raise BadRequest("functions must not be an empty array; leave it out.", param="functions")
    tools = [{"type": "function", "function": function} for function in functions]
    everything = _parsed(tools, legacy=True)
    choice = request.function_choice
    if choice == "none":
        return NO_TOOLS, CallPolicy()
    if isinstance(choice, FunctionChoice):
        tool = _chosen(everything, {"type": "function", "function": {"name": choice.name}}, "")
        return _only(tools, [tool]), CallPolicy(True, tool.python_name, True)
    return everything, CallPolicy(one_at_a_time=True)


def _parsed(
    tools: Sequence[Mapping[str, Any]], unsupported: Sequence[str] = (), *, legacy: bool = False
) -> Toolset:
    try:
        return Toolset.parse(tools, skip={INTERPRETER, *unsupported})
    except SchemaError as error:
        param = error.param
        if legacy:
            places = {f"tools[{n}].function": f"functions[{n}]" for n in range(len(tools))}
            param = moved_place(param, places)
        raise BadRequest(f"{param}: {error}", param=param) from error


def _chosen(
    toolset: Toolset, entry: Mapping[str, Any], place: str, hosted: Collection[object] = ()
) -> Tool:
    kind = entry.get("type", "function")
    named = entry.get(kind)
    name = named.get("name") if isinstance(named, Mapping) else None
    param = f"{place}.{kind}.name" if place else "function_call.name"
    for tool in toolset.tools:
        if tool.name == name:
            return tool
    if isinstance(name, str) and name in hosted:
        message = f"{param} is {name[:64]!r}, a tool that cannot run here."
        raise BadRequest(message, param, "unsupported_tool")
    if name is None:
        written = json_codec.dumps(
            {"type": kind, kind: {"name": str(entry.get("name") or "...")[:64]}}
        )
        raise BadRequest(f"{param} is missing: write {written.decode()}.", param=param)
    raise BadRequest(f"{param} is {name!r}, which is not in tools.", param=param)


def _only(tools: Sequence[Mapping[str, Any]], chosen: Sequence[Tool]) -> Toolset:
    names = {tool.name for tool in chosen}
    return Toolset.parse([tool for tool in tools if names & set(wire_names(tool))])


def wire_names(tool: Mapping[str, Any]) -> Iterator[str]:
    """The name of a function or custom tool; of others none."""
    for kind in ("function", "custom"):
        if isinstance(described := tool.get(kind), Mapping):
            yield str(described.get("name"))
