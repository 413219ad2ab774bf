"""A Responses request as one of chat completions, which is what the core answers.

Errors that the core finds in it are told at the places of the request that the client sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.answering.call_policy import INTERPRETER
from emulator.errors import BadRequest
from emulator.protocol import EMULATED, ChatCompletionRequest, Message, validated
from emulator.responses.items import Json
from emulator.responses.request import ResponseRequest, supported
from emulator.responses.tools import CALLABLE, CLIENT_TOOLS, qualified

# Sent upstream under the name that chat has for it.
_RENAMED: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "user": "user",
    "safety_identifier": "safety_identifier",
    "prompt_cache_key": "prompt_cache_key",
    "max_output_tokens": "max_tokens",
    "max_tool_calls": "max_tool_calls",
    "parallel_tool_calls": "parallel_tool_calls",
}

_TOOL = re.compile(r"\btools\[(\d+)\](?!\.tools\b)")

# What only chat has, and what is made here.
_CHATS_OWN = EMULATED | {"n", "response_format", "stream_options"}

# Where a client of this API finds what the core found in the request made here.
_PLACES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), place)
    for pattern, place in (
        (r"\btools\[(\d+)\]\.(?:function|custom)\b", r"tools[\1]"),
        (r"\btool_choice\.allowed_tools\b", "tool_choice"),
        (r"\b(tool_choice(?:\.tools\[\d+\])?)\.(?:function|custom)\b", r"\1"),
        (r"\bresponse_format\.json_schema\b", "text.format"),
        (r"\bresponse_format\b", "text.format"),
        (r"\bmax_tokens\b", "max_output_tokens"),
    )
)


def chat_request(
    request: ResponseRequest,
    messages: Sequence[Message],
    tools: Sequence[Json],
    containers: Sequence[str] = (),
) -> ChatCompletionRequest:
    """``tools`` are in chat's shape (`tools.offer`); ``containers`` those that earlier cells ran in, the
    latest last. Raises `BadRequest`."""
    sent_messages = [*messages]
    if request.instructions:
        sent_messages.insert(0, Message(role="system", content=request.instructions))
    if not sent_messages:
        raise BadRequest("input is missing: there is nothing to answer.", param="input")
    extra = request.model_extra or {}
    fields: dict[str, Any] = {name: extra[name] for name in extra.keys() - _CHATS_OWN}
    fields |= {
        chat: value
        for name, chat in _RENAMED.items()
        if (value := getattr(request, name)) is not None
    }
    if tools:
        fields["tools"] = [_going_on(tool, containers) for tool in tools]
    if request.tool_choice is not None:
        fields["tool_choice"] = _choice(request.tool_choice)
    if request.text is not None and request.text.verbosity is not None:
        fields["verbosity"] = request.text.verbosity
    if (format_ := _response_format(request)) is not None:
        fields["response_format"] = format_
    if request.reasoning is not None and request.reasoning.effort is not None:
        fields["reasoning_effort"] = request.reasoning.effort
    fields |= {"model": request.model, "messages": sent_messages, "stream": request.stream}
    return validated(ChatCompletionRequest, fields)


def told_as_sent(error: BadRequest, places: Sequence[str]) -> BadRequest:
    """An error about the chat request, about the request that it was made from.

    ``places`` are those of the tools there, by their place here.
    """
    param = error.param and _sent(error.param, places)
    return replace(error, message=_sent(error.message, places), param=param)


def _sent(text: str, places: Sequence[str]) -> str:
    for pattern, place in _PLACES:
        text = pattern.sub(place, text)
    return _TOOL.sub(lambda tool: _place(int(tool[1]), places), text)


def _place(n: int, places: Sequence[str]) -> str:
    return places[n] if n < len(places) else f"tools[{n}]"


def _going_on(tool: Json, containers: Sequence[str]) -> Json:
    """An interpreter that is to choose its container takes that of the conversation (`AutoContainer`)."""
    container = tool.get("container")
    if tool["type"] != INTERPRETER or not isinstance(container, Mapping):
        return tool
    return {**tool, "container": {**container, "reuse": list(containers)}}


def _choice(choice: str | Json) -> str | Json:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allowed(choice)
    supported(kind, "tool_choice.type")
    return _named(choice)


def _named(choice: Json) -> Json:
    kind = choice.get("type")
    if kind in CLIENT_TOOLS:
        return {"type": "function", "function": {"name": kind}}
    if kind not in CALLABLE or isinstance(choice.get(kind), Mapping):
        return choice
    return {"type": kind, kind: {"name": qualified(choice.get("namespace"), choice.get("name"))}}


def _allowed(choice: Json) -> Json:
    tools, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(tools, list) or not tools:
        raise BadRequest("tool_choice.tools must name tools.", param="tool_choice.tools")
    if mode not in ("auto", "required"):
        raise BadRequest("tool_choice.mode must be auto or required.", param="tool_choice.mode")
    places = [f"tool_choice.tools[{n}]" for n in range(len(tools))]
    for tool, place in zip(tools, places, strict=True):
        if not isinstance(tool, dict):
            raise BadRequest(f"{place} must be an object.", param=place)
    named = [_named(tool) for tool in tools]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def _response_format(request: ResponseRequest) -> Json | None:
    """``text.format`` as chat's ``response_format``; None for plain text."""
    asked = request.text.format if request.text is not None else None
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return {"type": "json_object"}
    described = asked.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
    return {"type": "json_schema", "json_schema": described}
