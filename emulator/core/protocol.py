"""The Chat Completions request: lenient about what clients send, strict about the fields that the proxy uses.

Fields that the proxy does not use stay in ``model_extra`` and go upstream unchanged. Knows nothing of
prompts, engines or Flask.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import PydanticUseDefault

from emulator.core import json_codec
from emulator.core.errors import BadRequest
from emulator.core.part_cache import Memos, PartCache
from emulator.core.request_advice import advice

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]

# The proxy handles these fields itself; they are never sent upstream.
EMULATED = frozenset(
    {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "max_tool_calls",
        "messages",
        "stream",
    }
)

_LONG = {"tools", "functions", "messages"}
"""The fields among them that are slow to serialize."""

_REMINDERS = re.compile(
    r"(?:\s*<system-reminder>(?:(?!</system-reminder>).)*</system-reminder>)+\s*", re.DOTALL
)
"""Claude Code adds such texts after results."""

REASONING_SWITCHES = (
    *("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "think"),
    "chat_template_kwargs",
)


_CHAT_CLIENT = object()
"""The context of a validation: the value is what a client of Chat Completions sent."""


def _unless_a_client_sent_it(value: T, info: ValidationInfo) -> T:
    if info.context is _CHAT_CLIENT:
        raise PydanticUseDefault
    return value


OfOtherFronts = Annotated[T, BeforeValidator(_unless_a_client_sent_it), Field(exclude=True)]
"""What the other fronts know of a request and Chat Completions has no field for. What a client sends under
the name does not count: it cannot, for example, approve a call."""


PARAGRAPH = "\n\n"
"""Between the text parts of a message."""

CLEARED = "[This result was cleared to shorten the conversation.]"
"""What a model reads instead of a result."""

_MEMOS = "memos"
"""An attribute of a message. Pydantic ignores what is no field."""


class Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class FunctionCall(Lenient):
    name: str
    arguments: str = "{}"


class CustomCall(Lenient):
    name: str
    input: str = ""


class HistoryCall(Lenient):
    """A tool call in an assistant message of the history."""

    id: str = ""
    type: Any = "function"
    function: FunctionCall | None = None
    custom: CustomCall | None = None
    server_label: OfOtherFronts[str | None] = None
    """The server of a hosted call, whose name is then the tool's name at that server."""
    caller: OfOtherFronts[str | None] = None
    """The id of the program that made the call; None if the model did."""

    @property
    def as_function(self) -> FunctionCall | None:
        """The call as a function call; a custom tool's call has the single argument ``input``."""
        if self.custom is None:
            return self.function
        arguments = json_codec.dumps({"input": self.custom.input}).decode()
        return FunctionCall(name=self.custom.name, arguments=arguments)

    @property
    def without_input(self) -> Self:
        if self.custom is not None:
            return self.model_copy(update={"custom": CustomCall(name=self.custom.name)})
        return self.model_copy(
            update={"function": self.function and FunctionCall(name=self.function.name)}
        )


class HistoryProgram(BaseModel):
    """A program that the client's history shows, on the message with its first calls."""

    id: str
    code: str
    result: str | None = None
    """Its output; None if it has not ended."""
    failed: bool = False
    """The result is why it failed."""
    fingerprint: str = ""
    """With it any replica can continue the program (`fingerprints`)."""


class Message(Lenient):
    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[HistoryCall] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None
    is_error: Any = Field(default=None, exclude=True)
    """True if a result is marked as a failure: Messages and Responses can do that, and here a chat too."""
    approval: OfOtherFronts[bool | None] = None
    """The client's decision about a hosted call, instead of its result; ``content`` is the reason."""
    found_tools: OfOtherFronts[list[str] | None] = None
    """The names of tools, or of their servers, that a search found: the model sees their stubs here."""
    program: OfOtherFronts[HistoryProgram | None] = None
    is_output: OfOtherFronts[bool] = False
    """The output of a cell: the model reads it as the user's message."""
    reasoning: OfOtherFronts[str] = ""
    """The reasoning before an answer, which Responses and Messages send back: for native models."""
    is_summary: OfOtherFronts[bool] = False
    """A summary that the proxy made of the messages before it."""
    cleared: OfOtherFronts[frozenset[str]] = frozenset()
    """The ids of calls: the model reads neither their results nor, on the message with the calls, their
    arguments (`conversation.context`)."""
    model_view: OfOtherFronts[Any] = None
    """What the model saw of this answer (`history.ModelView`)."""

    def memo(self, name: str, key: object, make: Callable[[], T]) -> T:
        """The result of ``make``. Of a message that the next request of its client may have again, the last
        result of this ``name`` is kept, and used while its ``key`` is the same."""
        memos = self.__dict__.get(_MEMOS)
        if memos is None:
            return make()
        slot = memos.slots.get(name)
        if slot is None or slot[0] != key:
            slot = memos.store(name, key, make())
        result: T = slot[1]
        return result

    @property
    def memos(self) -> Memos:
        """Where `memo` keeps results from now on."""
        memos: Memos = vars(self).setdefault(_MEMOS, Memos())
        return memos

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As the base class, without what was made of this message."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop(_MEMOS, None)
        return copied

    @property
    def is_remark(self) -> bool:
        """Whether a client added this message to a history on its own, so that it asks for nothing."""
        reminds = self.role == "user" and _REMINDERS.fullmatch(self.text) is not None
        return self.role in ("system", "developer") or (reminds and not self.other_parts)

    @property
    def asks(self) -> bool:
        """Whether the user asks or says something with this message."""
        return self.role == "user" and not self.is_output and not self.is_remark

    @property
    def text(self) -> str:
        """The message's text, without the parts that are not text. Each part is a paragraph, on every front:
        a client that changes its API keeps the server's cached prefix."""
        if isinstance(self.content, list):
            texts = (part["text"] for part in self.content if _is_text(part))
            return PARAGRAPH.join(filter(None, texts))
        return self.content or ""

    @property
    def plain(self) -> Self:
        """With text parts as one text, unless it has other parts: not every server takes a list."""
        if not isinstance(self.content, list) or not self.content or self.other_parts:
            return self
        return self.model_copy(update={"content": self.text})

    @property
    def shown(self) -> Self:
        """The message without what is cleared."""
        if not self.cleared:
            return self
        if self.role == "tool":
            return self.model_copy(update={"content": CLEARED, "cleared": frozenset()})
        calls = [
            call.without_input if call.id in self.cleared else call
            for call in self.tool_calls or ()
        ]
        return self.model_copy(update={"tool_calls": calls, "cleared": frozenset()})

    @property
    def for_model(self) -> Self:
        """The message `shown` to a model: a result that is marked as a failure says so."""
        shown = self.shown
        if self.is_error is not True or shown.text.lstrip().lower().startswith("error"):
            return shown
        if isinstance(shown.content, list):
            parts = [{"type": "text", "text": "Error:"}, *shown.content]
            return shown.model_copy(update={"content": parts})
        return shown.model_copy(update={"content": f"Error:\n{shown.content or ''}"})

    @property
    def other_parts(self) -> list[dict[str, Any]]:
        """The parts that are not text: images, audio, files."""
        if not isinstance(self.content, list):
            return []
        return [part for part in self.content if not _is_text(part)]


class StreamOptions(Lenient):
    include_usage: bool | None = None


class AllowedTools(BaseModel):
    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]] = Field(min_length=1)


class ToolChoice(Lenient):
    """The object forms of ``tool_choice``."""

    type: str
    function: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None
    allowed_tools: AllowedTools | None = None


class FunctionChoice(Lenient):
    """The object form of the legacy ``function_call``."""

    name: str


class ChatCompletionRequest(Lenient):
    model: str = Field(min_length=1)
    messages: list[Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_choice: Literal["none", "auto"] | FunctionChoice | None = Field(
        None, alias="function_call"
    )
    response_format: dict[str, Any] | None = None
    max_tool_calls: int | None = Field(None, ge=1)
    """The maximum number of interpreter cells, and of hosted calls, in one answer (Responses)."""
    removed_tools: OfOtherFronts[list[str]] = []
    """The names of tools, or of their servers, that the client removed during the conversation."""
    listed_servers: OfOtherFronts[dict[str, list[dict[str, Any]]] | None] = None
    """The tools of servers by label, as the history lists them: they are not listed again."""
    shows_programs: OfOtherFronts[bool] = False
    """The client sees programs, and says which tools they may call."""
    context_rules: OfOtherFronts[Any] = None
    """The client's rules for a long conversation (`conversation.context.ContextRules`)."""
    unlisted: OfOtherFronts[dict[str, Any]] = {}
    """The fields of the client's request that its front's table does not name."""
    ignored: OfOtherFronts[tuple[str, ...]] = ()
    """The fields and betas that have no effect, by the front's tables."""
    n: int | None = Field(None, ge=1, le=128)
    stop: str | list[str] | None = None

    @property
    def is_legacy(self) -> bool:
        """Return True if the client uses ``functions`` and so expects calls as ``function_call``."""
        return self.functions is not None and self.tools is None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def reasoning_switches(self) -> str:
        """The fields that turn a model's reasoning on and off, with any server, as canonical JSON."""
        extra = self.model_extra or {}
        switches = {name: extra[name] for name in REASONING_SWITCHES if name in extra}
        try:
            return json_codec.dumps(switches, option=json_codec.SORTED).decode()[:1000]
        except TypeError:  # nested too deeply
            return ""

    def with_messages(self, messages: Sequence[Message]) -> Self:
        """The same request with another history."""
        return self.model_copy(update={"messages": [*messages]})

    def plain_fields(self) -> dict[str, Any]:
        """The fields that the client sent, without those that the proxy handles itself."""
        fields = self.model_dump(
            exclude=_LONG, exclude_unset=True, exclude_none=True, by_alias=True
        )
        return {name: value for name, value in fields.items() if name not in EMULATED}


def parse_chat(
    body: bytes, client: str = "", cache: PartCache | None = None
) -> ChatCompletionRequest:
    """Parse a request body. Raises `BadRequest`, whose ``param`` names the invalid place. Messages that the
    ``client`` sent before are the same objects."""
    return parse_conversation(body, ChatCompletionRequest, client, cache, context=_CHAT_CLIENT)


def parse_conversation(
    body: bytes, model: type[M], client: str, cache: PartCache | None, context: object = None
) -> M:
    """Parse a request that has a field ``messages``, as `parse_chat` does."""
    fields = read_object(body)
    messages = fields.get("messages")
    if cache is None or not isinstance(messages, list):
        return validated(model, fields, context=context)
    lookup = cache.look_up(client, model.__name__, messages)
    request = validated(model, {**fields, "messages": lookup.parts}, context=context)
    lookup.store(request.messages)  # type: ignore[attr-defined]
    return request


def parse_body(body: bytes | dict[str, Any], model: type[M]) -> M:
    """Parse any request, from JSON or from form fields. Raises `BadRequest` as `parse_chat` does."""
    return validated(model, read_object(body))


def read_object(body: bytes | dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object in ``body``. Raises `BadRequest`."""
    try:
        value = json_codec.loads(body.removeprefix(BOM_UTF8)) if isinstance(body, bytes) else body
    except json_codec.NotJSON as error:
        raise BadRequest(f"The request body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    return value


_EXPECTED = "Input should be "
_OBJECT = re.compile(r"a valid dictionary or instance of \w+")
"""Pydantic's words for an object, with the name of a class here."""


def validated(model: type[M], value: Any, place: str = "", context: object = None) -> M:
    """Validate ``value`` as a ``model``. Raises `BadRequest`, whose ``param`` starts with ``place``."""
    try:
        return model.model_validate(value, context=context)
    except ValidationError as error:
        found = [
            (
                _path(one["loc"], value, missing=one["type"] == "missing"),
                one["msg"].removeprefix("Value error, "),
            )
            for one in error.errors(include_url=False, include_input=False)
        ]
        # Of the branches of a union, the one that fits best fails at the deepest place.
        inside = max((at for at, _ in found if at.startswith(found[0][0])), key=len)
        expected = dict.fromkeys(
            _OBJECT.sub("an object", text) for at, text in found if at == inside
        )
        problem = ", or ".join(expected).replace(f", or {_EXPECTED}", ", or ")
        param = f"{place}.{inside}" if place and inside else place or inside
        problem = problem.replace("tuple", "list")
        hint = advice(model.__name__, inside, value)
        raise BadRequest(f"Invalid value for {param!r}: {problem}.{hint}", param=param) from error


def _path(location: tuple[int | str, ...], value: Any, *, missing: bool) -> str:
    """Write the location ``("messages", 0, "role")`` as ``messages[0].role``.

    Pydantic inserts the names of union branches into a location. A step that is not in the body is such a
    name, unless it is the last step and the error is that it is missing.
    """
    path = ""
    for depth, step in enumerate(location):
        if isinstance(step, int):
            path += f"[{step}]"
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, Mapping) and (
            step in value or (missing and depth == len(location) - 1)
        ):
            path += f".{step}" if path else step
            value = value.get(step)
    return path


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("text", "input_text") and isinstance(part.get("text"), str)
