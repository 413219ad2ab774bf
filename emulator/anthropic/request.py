"""The Messages request: tolerant of all that real clients send, and as a request of chat completions.

What only concerns an account or a cache (``metadata``, ``cache_control``, ``service_tier`` ...) is
accepted and goes nowhere. Errors that the core finds are told at the places of the request that the
client sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from emulator.answering.call_policy import INTERPRETER
from emulator.anthropic.blocks import messages
from emulator.anthropic.tools import chat_tools, is_code_execution
from emulator.errors import BadRequest
from emulator.protocol import ChatCompletionRequest, Lenient, Message, validated

Json = dict[str, Any]


class InputMessage(Lenient):
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class ToolChoice(Lenient):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Lenient):
    type: str


class OutputConfig(Lenient):
    effort: str | None = None
    format: dict[str, Any] | None = None


class CountRequest(Lenient):
    """What counts for a prompt's tokens."""

    model: str = Field(min_length=1)
    messages: list[InputMessage] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    container: str | dict[str, Any] | None = None

    @property
    def thinks(self) -> bool:
        """Whether reasoning is to be told: this API gives it only to those who ask for it."""
        return self.thinking is not None and self.thinking.type != "disabled"


class MessagesRequest(CountRequest):
    max_tokens: int = Field(ge=1)
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)


_BILLING = "x-anthropic-billing-header:"
"""Begins a block of the system text that Claude Code sends for Anthropic's accounts, not for the model."""

_SENT_ON = ("max_tokens", "temperature", "top_p", "top_k")

# Where a client of this API finds what the core found in the request made here.
_PLACES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), place)
    for pattern, place in (
        (r"\btools\[(\d+)\]\.function\.parameters\b", r"tools[\1].input_schema"),
        (r"\btools\[(\d+)\]\.function\b", r"tools[\1]"),
        (r"\btool_choice\.function\b", "tool_choice"),
        (r"\bresponse_format\.json_schema\b", "output_config.format"),
        (r"\bresponse_format\b", "output_config.format"),
    )
)


def chat_request(request: CountRequest) -> ChatCompletionRequest:
    """Raises `BadRequest` naming the place."""
    fields: Json = {"model": request.model, "messages": _messages(request)}
    if isinstance(request, MessagesRequest):
        fields |= {
            name: value for name in _SENT_ON if (value := getattr(request, name)) is not None
        }
        fields["stream"] = request.stream
        if request.stop_sequences:
            fields["stop"] = request.stop_sequences
    if request.tools:
        fields["tools"] = chat_tools(request.tools, request.container)
    if request.tool_choice is not None:
        fields |= _choice(request.tool_choice, request.tools or ())
    config = request.output_config
    if config is not None and config.effort is not None:
        fields["reasoning_effort"] = config.effort
    if (asked := (config.format if config else None) or request.output_format) is not None:
        fields["response_format"] = _format(asked)
    return validated(ChatCompletionRequest, fields)


def told_as_sent(error: BadRequest) -> BadRequest:
    """An error about the chat request, about the request that it was made from.

    This API's errors have no field for the place: the message names it.
    """
    param = error.param and _sent(error.param)
    message = _sent(error.message)
    if param and param not in message:
        message = f"{param}: {message}"
    return replace(error, message=message, param=param)


def _sent(text: str) -> str:
    for pattern, place in _PLACES:
        text = pattern.sub(place, text)
    return text


def _messages(request: CountRequest) -> list[Message]:
    system = request.system
    if isinstance(system, list):
        texts = (str(block.get("text", "")) for block in system)
        system = "\n\n".join(text for text in texts if not text.startswith(_BILLING))
    opening = [Message(role="system", content=system)] if system else []
    for n, message in enumerate(request.messages):
        opening += messages(message.role, message.content, f"messages[{n}].content")
    if not opening:
        raise BadRequest("messages hold nothing to answer.", param="messages")
    return opening


def _choice(choice: ToolChoice, sent: Sequence[Json]) -> Json:
    """``sent`` are the tools that the client sent."""
    forms: Mapping[str, Any] = {
        "auto": "auto",
        "any": "required",
        "none": "none",
        "tool": {"type": "function", "function": {"name": choice.name}},
    }
    if choice.type == "tool" and choice.name is None:
        raise BadRequest("tool_choice.name is missing.", param="tool_choice.name")
    fields: Json = {"tool_choice": forms[choice.type]}
    if choice.type == "tool" and any(
        is_code_execution(tool) for tool in sent if tool.get("name") == choice.name
    ):
        fields["tool_choice"] = {"type": INTERPRETER}
    if choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    return fields


def _format(asked: Json) -> Json:
    """``{"type": "json_schema", "schema": ...}`` as chat's ``response_format``."""
    if asked.get("type") != "json_schema":
        return {"type": str(asked.get("type"))}
    described = {"name": "answer", "schema": asked.get("schema")}
    return {"type": "json_schema", "json_schema": described}
