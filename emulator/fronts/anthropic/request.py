"""The Messages request, lenient about what clients send, and its conversion to a chat completion request.

`wire` says what becomes of each field and beta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from emulator.conversation.billing_line import without_billing_line
from emulator.conversation.call_policy import INTERPRETER
from emulator.conversation.client_history import ClientHistory
from emulator.core.errors import BadRequest, EmulatorError, FailedDependency
from emulator.core.protocol import PARAGRAPH, ChatCompletionRequest, Lenient, Message, validated
from emulator.core.wire import upstream_fields
from emulator.fronts.anthropic.blocks import add_messages
from emulator.fronts.anthropic.code_calls import Cells, Content, check_results, is_code_execution
from emulator.fronts.anthropic.context import ContextManagement
from emulator.fronts.anthropic.mcp_servers import (
    McpServer,
    listed_servers,
    server_places,
    with_mcp_tools,
)
from emulator.fronts.anthropic.parts import text
from emulator.fronts.anthropic.tool_changes import ChangedTools, offered_tools, tool_changes
from emulator.fronts.anthropic.tools import chat_tools
from emulator.fronts.anthropic.wire import FIELDS, ignored_betas, ignored_blocks

Json = dict[str, Any]


class OutputConfig(Lenient):
    effort: str | None = None
    format: dict[str, Any] | None = None


class InputMessage(Lenient):
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]] = ""
    clear_at: Literal["next_user_message", "never"] | None = None
    """Of a system message: it holds until the next message of the user, or for good."""
    output_config: OutputConfig | None = None


class MessagesToolChoice(Lenient):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Lenient):
    type: str
    display: str | None = None


class ThreadState(Lenient):
    """``thread``: the proxy holds the conversation (`threads`)."""

    type: Literal["create", "continue"]
    previous_message_id: str = ""
    """The id of the reply that a ``continue`` follows."""


class Compaction(Lenient):
    """``compaction``: the answer is a summary that replaces the conversation."""

    type: Literal["summarize"]
    instructions: str | None = None


class ContainerReference(Lenient):
    id: str | None = None


class CountRequest(Lenient):
    """The fields that determine the prompt and so its number of tokens."""

    model: str = Field(min_length=1)
    messages: list[InputMessage] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    container: str | ContainerReference | None = None
    mcp_servers: list[McpServer] | None = None
    context_management: ContextManagement | None = None

    @property
    def thinks(self) -> bool:
        """Return True if the client asked for reasoning; otherwise this API does not send it."""
        thinking = self.thinking or Thinking(type="disabled")
        return thinking.type != "disabled" and thinking.display != "omitted"

    @property
    def effort(self) -> str | None:
        """Of the reasoning: what the last system message says, or else the request."""
        shown = [m for n, m in enumerate(self.messages) if not self.is_cleared(n)]
        configs = [self.output_config, *(message.output_config for message in shown)]
        return next((each.effort for each in reversed(configs) if each and each.effort), None)

    def is_cleared(self, n: int) -> bool:
        """Return True if a message of the user ends what the message of this number says."""
        message, *later = self.messages[n:]
        return message.clear_at == "next_user_message" and any(m.role == "user" for m in later)

    @property
    def container_id(self) -> str | None:
        return (
            self.container.id if isinstance(self.container, ContainerReference) else self.container
        )

    def tool_changes(self, stored: int = 0) -> Iterator[tuple[str, Json]]:
        """The changes of the tools in the messages, with their places; ``stored`` as for `chat_request`."""
        return tool_changes([message.content for message in self.messages], -stored)

    def offered_tools(self, stored: int = 0) -> ChangedTools:
        """Raises `BadRequest`."""
        return offered_tools(self.tools or (), self.tool_changes(stored))


class MessagesRequest(CountRequest):
    max_tokens: int = Field(ge=0)
    """0: the prompt is read, which fills the upstream's prefix cache, and nothing is answered."""
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)
    thread: ThreadState | None = None
    compaction: Compaction | None = None


def chat_request(request: CountRequest, stored: int = 0, betas: str = "") -> ChatCompletionRequest:
    """Convert to a chat completion request. The first ``stored`` messages are those of a thread; ``betas`` is
    the header ``anthropic-beta``.

    Raises `BadRequest`, which names the place.
    """
    fields: Json = {"model": request.model, "messages": _messages(request, stored)}
    sent = {name: getattr(request, name) for name in request.model_fields_set}
    fields |= upstream_fields(FIELDS, sent | (request.model_extra or {}))
    answers = (m.content for m in request.messages if m.role == "assistant")
    ignored = (*ignored_betas(betas), *ignored_blocks(answers))
    fields["ignored"] = (*fields["ignored"], *ignored)
    if isinstance(request, MessagesRequest):
        fields["stream"] = request.stream
        fields["max_tokens"] = request.max_tokens or 1
    if request.context_management is not None:
        fields["context_rules"] = request.context_management.rules
    offered = request.offered_tools(stored)
    fields["removed_tools"] = offered.removed
    tools, pinned = with_mcp_tools(offered.tools, request.mcp_servers or (), betas)
    if tools:
        fields["tools"] = chat_tools(tools, request.container_id)
    fields["listed_servers"] = listed_servers([m.content for m in request.messages]) | pinned
    if request.tool_choice is not None:
        fields |= _tool_choice(request.tool_choice, request.tools or (), fields.get("tools", ()))
    if request.effort is not None:
        fields["reasoning_effort"] = request.effort
    config = request.output_config
    output_format = (config.format if config else None) or request.output_format
    if output_format is not None:
        fields["response_format"] = _response_format(output_format)
    return validated(ChatCompletionRequest, fields)


def at_client_place(
    error: EmulatorError, request: CountRequest, offered: ChangedTools
) -> EmulatorError:
    """Make an error about the chat request name the place in the client's own request."""
    moved = error.moved(_client_places(request, offered))
    if isinstance(moved, FailedDependency):  # a 400 at Anthropic
        return BadRequest(moved.message, moved.param, moved.code)
    return moved


def _client_places(request: CountRequest, offered: ChangedTools) -> Json:
    """Places in the chat request -> in the client's own."""
    config = request.output_config
    format_place = "output_config.format" if config and config.format else "output_format"
    places = {
        "tool_choice.function": "tool_choice",
        **{f"tools[{n}].container": "container" for n in range(len(offered.tools))},
        "response_format": format_place,
        "response_format.json_schema": format_place,
    }
    for n in range(len(offered.tools)):
        place = f"tools[{n}]"
        own = offered.places.get(place, place)
        places |= dict.fromkeys((place, f"{place}.function"), own)
        places[f"{place}.function.parameters"] = f"{own}.input_schema"
    return places | dict(server_places(offered.tools, request.mcp_servers or ()))


def _messages(request: CountRequest, stored: int) -> list[Message]:
    system = request.system
    if isinstance(system, list):
        texts = [text(block, "text", f"system[{n}]") for n, block in enumerate(system)]
        # Here too: a block that is nothing but the line leaves no blank lines behind.
        system = PARAGRAPH.join(filter(None, map(without_billing_line, texts)))
    history = ClientHistory()
    if system:
        history.add_message(Message(role="system", content=system))
    answer: Content = ()
    following: dict[str, Content] = {}
    cells = Cells((message.content for message in request.messages), history)
    for n, message in enumerate(request.messages, -stored):
        place = f"messages[{n}].content"
        _check_message(message, f"messages[{n}]")
        if message.role == "system" and (not message.content or request.is_cleared(n + stored)):
            continue
        add_messages(history, message.role, message.content, place, cells)
        if message.role == "assistant":
            answer, following = message.content, {}
        elif message.role == "user":
            following[place] = message.content
    check_results(answer, following)
    if not history.messages:
        raise BadRequest("messages have no content to answer.", param="messages")
    return history.messages


def _check_message(message: InputMessage, place: str) -> None:
    """Raises `BadRequest`."""
    if message.role == "system":
        if not message.content and not (message.output_config and message.output_config.effort):
            raise BadRequest(f"{place} has neither content nor output_config.", place)
        return
    for name in ("clear_at", "output_config"):
        if getattr(message, name) is not None:
            raise BadRequest(f"{place}.{name}: only a system message has it.", f"{place}.{name}")
    if "content" not in message.model_fields_set:
        raise BadRequest(f"{place}.content is missing.", f"{place}.content")


def _tool_choice(
    choice: MessagesToolChoice, tools: Sequence[Json], chat_tools: Sequence[Json]
) -> Json:
    """Convert ``choice``; ``tools`` are the tools that the client sent, and their conversions."""
    forms: Mapping[str, Any] = {
        "auto": "auto",
        "any": "required",
        "none": "none",
        "tool": {"type": "function", "function": {"name": choice.name}},
    }
    if choice.type == "tool" and choice.name is None:
        raise BadRequest("tool_choice.name is missing.", param="tool_choice.name")
    for tool in chat_tools:
        if (
            "direct" not in tool.get("callers", ["direct"])
            and tool["function"]["name"] == choice.name
        ):
            message = "tool_choice.name: only code may call this tool (allowed_callers)."
            raise BadRequest(message, "tool_choice.name")
    fields: Json = {"tool_choice": forms[choice.type]}
    if choice.type == "tool" and any(
        is_code_execution(tool.get("type")) for tool in tools if tool.get("name") == choice.name
    ):
        fields["tool_choice"] = {"type": INTERPRETER}
    if choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    return fields


def _response_format(output_format: Json) -> Json:
    """Convert ``{"type": "json_schema", "schema": ...}`` to chat's ``response_format``."""
    if output_format.get("type") != "json_schema":
        place = "output_config.format.type"
        raise BadRequest(f"{place} must be json_schema.", place)
    schema = {"name": "answer", "schema": output_format.get("schema")}
    return {"type": "json_schema", "json_schema": schema}
