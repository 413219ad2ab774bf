"""Convert a Responses request to a chat completion request, which the core answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.answering.hosted_shell import SHELL
from emulator.conversation.call_policy import INTERPRETER, SUPPORTED_TYPES
from emulator.conversation.context import ContextRules, Summarize
from emulator.core.errors import BadRequest, unsupported_type
from emulator.core.protocol import ChatCompletionRequest, Message, validated
from emulator.core.wire import upstream_fields
from emulator.fronts.responses.callers import PROGRAMS
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.request import INCLUDED, LOGPROBS, ResponseRequest
from emulator.fronts.responses.tools import CALLABLE, CLIENT_TOOLS, check_has_type, qualified
from emulator.fronts.responses.wire import FIELDS

# Tools that run in a container -> the field that names it.
_ENVIRONMENTS = {INTERPRETER: "container", SHELL: "environment"}

_SAME = ("max_tool_calls", "parallel_tool_calls")
"""Fields that are applied by the core, under the same name."""


def chat_request(
    request: ResponseRequest,
    messages: Sequence[Message],
    tools: Sequence[Json],
    containers: Sequence[tuple[str, str]] = (),
) -> ChatCompletionRequest:
    """Convert ``request``. ``tools`` have chat's shape (`tools.to_chat_tools`); ``containers`` are those of
    earlier cells and shell commands (`hosted_items.used_containers`). Raises `BadRequest`."""
    chat_messages = [*messages]
    if request.instructions:
        chat_messages.insert(0, Message(role="system", content=request.instructions))
    if not chat_messages:
        hint = ' "messages" belongs to /v1/chat/completions.' * (
            "messages" in (request.model_extra or {})
        )
        raise BadRequest(f"input is missing: there is nothing to answer.{hint}", param="input")
    sent = {name: getattr(request, name) for name in request.model_fields_set}
    fields = upstream_fields(FIELDS, sent)
    unknown = [f"include.{name}" for name in request.include or () if name not in INCLUDED]
    fields["ignored"] = (*fields["ignored"], *unknown)
    fields |= {name: sent[name] for name in _SAME if sent.get(name) is not None}
    if tools:
        fields["tools"] = _reusing(tools, containers)
    if request.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(request.tool_choice, tools)
    if request.text is not None and request.text.verbosity is not None:
        fields["verbosity"] = request.text.verbosity
    if (format_ := _response_format(request)) is not None:
        fields["response_format"] = format_
    if request.reasoning is not None and request.reasoning.effort is not None:
        fields["reasoning_effort"] = request.reasoning.effort
    if request.prewarms:
        fields["max_tokens"] = 1
    if LOGPROBS in (request.include or ()):
        fields["logprobs"] = True
        if request.top_logprobs:
            fields["top_logprobs"] = request.top_logprobs
    if request.context_management:
        rule = Summarize(request.context_management[0].compact_threshold)
        fields["context_rules"] = ContextRules(summary=rule)
    fields |= {"model": request.model, "messages": chat_messages, "stream": request.stream}
    return validated(ChatCompletionRequest, fields)


def client_places(
    request: ResponseRequest, tool_places: Sequence[str], format_place: str
) -> dict[str, str]:
    """Places in the chat request -> in the client's own. ``tool_places`` are those of the tools, by their
    index in the chat request; ``format_place`` is that of the text's format."""
    places = {
        "tool_choice.allowed_tools": "tool_choice",
        "response_format": format_place,
        "response_format.json_schema": format_place,
        "max_tokens": "max_output_tokens",
    }
    nested = {f"tools[{n}]": place for n, place in enumerate(tool_places)}
    chosen = request.tool_choice.get("tools") if isinstance(request.tool_choice, dict) else None
    for n in range(len(chosen) if isinstance(chosen, list) else 0):
        nested[f"tool_choice.allowed_tools.tools[{n}]"] = f"tool_choice.tools[{n}]"
    nested["tool_choice"] = "tool_choice"
    for place, own in nested.items():
        places |= dict.fromkeys((place, f"{place}.function", f"{place}.custom"), own)
    return places


def _reusing(tools: Sequence[Json], containers: Sequence[tuple[str, str]]) -> list[Json]:
    """Let tools with an automatic container reuse that of the conversation (`AutoContainer`).

    A cell that waits for a shell command occupies its container, so each of the two tools has its own.
    """
    kinds = {tool["type"] for tool in tools}
    cells = [one for kind, one in containers if kind == INTERPRETER]
    everything = [one for _, one in containers]
    known = {INTERPRETER: everything, SHELL: everything}
    if kinds.issuperset(known):
        others = [one for kind, one in containers if kind == SHELL and one not in cells]
        known = {INTERPRETER: cells, SHELL: others}
    reusing: list[Json] = []
    for tool in tools:
        name = _ENVIRONMENTS.get(tool["type"])
        wanted = tool.get(name) if name else None
        if name and isinstance(wanted, Mapping):
            reusing.append({**tool, name: {**wanted, "reuse": known[tool["type"]]}})
        else:
            reusing.append(tool)
    return reusing


def _tool_choice(choice: str | Json, offered: Sequence[Json]) -> str | Json:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind == PROGRAMS:
        return "required"
    if kind == "allowed_tools":
        return _allowed_tools(choice, offered)
    if not isinstance(kind, str):
        known = ", ".join(sorted({*SUPPORTED_TYPES, *CLIENT_TOOLS, "mcp"}))
        raise unsupported_type(kind, "tool_choice.type", known, "unsupported_tool")
    return _single_tool(choice)


def _single_tool(choice: Json) -> Json:
    kind = choice.get("type")
    if kind in CLIENT_TOOLS:
        return {"type": "function", "function": {"name": kind}}
    if kind not in CALLABLE or isinstance(choice.get(kind), Mapping):
        return choice
    return {"type": kind, kind: {"name": qualified(choice.get("namespace"), choice.get("name"))}}


def _allowed_tools(choice: Json, offered: Sequence[Json]) -> Json:
    """``offered``: the tools of the chat request."""
    tools, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(tools, list) or not tools:
        raise BadRequest("tool_choice.tools must name tools.", param="tool_choice.tools")
    if mode not in ("auto", "required"):
        raise BadRequest("tool_choice.mode must be auto or required.", param="tool_choice.mode")
    places = [f"tool_choice.tools[{n}]" for n in range(len(tools))]
    chat_tools: list[Json] = []
    for tool, place in zip(tools, places, strict=True):
        check_has_type(tool, place)
        if tool.get("type") != "namespace":
            chat_tools.append(_single_tool(tool))
            continue
        inside = _namespace(str(tool.get("name")), offered)
        if not inside:
            raise BadRequest(f"{place} names a namespace that is not in tools.", param=place)
        chat_tools += inside
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": chat_tools}}


def _namespace(name: str, offered: Sequence[Json]) -> list[Json]:
    """What names the tools of a namespace in the chat request."""
    callable_tools = [(tool["type"], tool) for tool in offered if tool["type"] in CALLABLE]
    names = [(kind, str(tool[kind]["name"])) for kind, tool in callable_tools]
    return [
        {"type": kind, kind: {"name": each}} for kind, each in names if each.startswith(f"{name}.")
    ]


def _response_format(request: ResponseRequest) -> Json | None:
    """Convert ``text.format`` to chat's ``response_format``; None for plain text."""
    format_ = request.text.format if request.text is not None else None
    if format_ is None or format_.type == "text":
        return None
    if format_.type == "json_object":
        return {"type": "json_object"}
    json_schema = format_.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
    return {"type": "json_schema", "json_schema": json_schema}
