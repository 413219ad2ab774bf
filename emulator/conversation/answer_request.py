"""A client's request, parsed once. Every decision about its answer is made from this value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from emulator.conversation.answer_format import AnswerFormat
from emulator.conversation.call_policy import (
    NO_TOOLS,
    CallPolicy,
    interpreter_container,
    offered_tools,
    unsupported_types,
)
from emulator.conversation.context import AppliedEdit
from emulator.conversation.deferred_tools import DeferredTools
from emulator.conversation.forced_call import ForcedCall
from emulator.conversation.profiles import Profile, keeps_later_system, profile_of
from emulator.conversation.upstream_fields import UpstreamFields
from emulator.core.cached_property import cached_property
from emulator.core.errors import BadRequest
from emulator.core.protocol import ChatCompletionRequest, Message, ToolChoice
from emulator.history import History
from emulator.hosted.hosted_tool import NO_HOSTED_TOOLS, HostedTools
from emulator.interpreter.container_choice import AutoContainer, ContainerChoice
from emulator.settings.settings import Order, Settings
from emulator.tools.toolset import Toolset
from emulator.upstream.metering import estimate_tokens
from emulator.upstream.routes import Route


class PromptTooLong(Exception):
    """The model would be asked with a longer prompt than `AnswerRequest.longest_prompt`. Nothing was sent,
    and no code ran that has an effect."""


class Omitted(NamedTuple):
    """What of a client's request has no effect: types of hosted tools, names of fields and betas."""

    tools: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerRequest:
    """One request of one client."""

    chat: ChatCompletionRequest
    """The request in the form of Chat Completions, whichever API the client uses."""
    client: str
    """The owner of the containers and files that may be used."""
    route: Route
    """The upstream and the model to ask."""
    toolset: Toolset
    call_policy: CallPolicy
    answer_format: AnswerFormat | None
    interpreter: ContainerChoice | None
    """The code interpreter's container, if the model may use it."""
    order: Order
    """Which calls may share one message."""
    relayed: bool
    """Nothing is emulated: the upstream's reply, with all its ``n`` choices, is the answer."""
    finds_stop_string: bool = False
    """The front must report which stop string ended the answer, so the proxy looks for them itself:
    upstreams that stop at a string do not say which one it was."""
    unsupported_tools: tuple[str, ...] = ()
    """Types of hosted tools that nobody can run here. The model does not see them."""
    hosted: HostedTools = NO_HOSTED_TOOLS
    """The tools that the proxy runs itself; they are part of the toolset."""
    deferred: DeferredTools | None = None
    """The tools that the prompt only lists."""
    history: History = field(default_factory=History)
    """What is remembered of the history that the client sent."""
    applied_edits: Sequence[AppliedEdit] = ()
    """What of the history the model does not read."""
    asks_approval: bool = False
    """The client can decide about hosted calls. Otherwise those that need a decision are refused."""
    longest_prompt: int = 0
    """Tokens of the first prompt above which the answer is `PromptTooLong`; 0: any length."""
    is_continued: bool = False
    """A part of the answer was made: an error has no status of its own any more."""
    shows_hosted: bool = False
    """The client sends back the hosted calls and cells of earlier answers, with their results."""

    @property
    def settings(self) -> Settings:
        """The settings for this route's upstream."""
        return self.route.settings

    @cached_property
    def profile(self) -> Profile:
        return profile_of(self.settings, self.route.model, self.route.description)

    @property
    def keeps_later_system(self) -> bool:
        """Whether the model's chat template accepts system messages after the first."""
        return keeps_later_system(self.profile, self.route.model)

    @cached_property
    def upstream_fields(self) -> UpstreamFields:
        """Which fields of the client's request go to this route's upstream."""
        return UpstreamFields.of(self.chat, self.profile, self.settings)

    @property
    def omitted(self) -> Omitted:
        """What of the request has no effect, for headers."""
        names = (*self.upstream_fields.ignored, *self.hosted.ignored)
        return Omitted(self.unsupported_tools, names)

    @property
    def unscored(self) -> tuple[str, ...]:
        """The fields that ask for log probabilities, which emulated calls have none of."""
        names = ("logprobs", "top_logprobs")
        return tuple(name for name in names if getattr(self.chat, name, None))

    @property
    def forced_call(self) -> ForcedCall | None:
        """The one function that the model must call, if it may do nothing else."""
        forced = self.call_policy.required and self.interpreter is None
        match self.toolset.tools:
            case [tool] if forced and tool.kind == "function":
                return ForcedCall(tool, self.toolset)
        return None

    def check_length(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """``messages`` and ``tools`` are what the model is asked with. Raises `PromptTooLong`."""
        if self.longest_prompt and estimate_tokens(messages, tools) > self.longest_prompt:
            raise PromptTooLong

    def with_route(self, route: Route) -> AnswerRequest:
        """The same request to another upstream."""
        if route is self.route:
            return self
        return replace(self, route=route, relayed=self.is_relayed_by(route))

    def with_messages(self, messages: Sequence[Message]) -> AnswerRequest:
        """The same request with another history."""
        return replace(self, chat=self.chat.with_messages(messages))

    def continued(self, messages: Sequence[Message]) -> AnswerRequest:
        """The request after a hosted call and its result, which end ``messages``. A required call is made."""
        whole = self.with_messages([*self.chat.messages, *messages])
        later = replace(whole, longest_prompt=0, is_continued=True)
        calls = [call.function for message in messages for call in message.tool_calls or ()]
        search = self.deferred.search if self.deferred else None
        has_searched_only = all(call is not None and call.name == search for call in calls)
        if not self.call_policy.required or has_searched_only:
            return later
        choice = self.chat.tool_choice
        allowed = choice.allowed_tools if isinstance(choice, ToolChoice) else None
        free: Any = "auto"
        if allowed is not None:
            free = {"type": "allowed_tools", "allowed_tools": {"tools": allowed.tools}}
            free = ToolChoice.model_validate(free)
        chat = later.chat.model_copy(update={"tool_choice": free})
        toolset, policy = offered_tools(chat)
        policy = replace(policy, programs=self.call_policy.programs)
        return replace(later, chat=chat, toolset=toolset, call_policy=policy)

    def without_tools(self) -> AnswerRequest:
        """The same request for an answer in words."""
        policy = CallPolicy(programs=self.call_policy.programs)
        later = replace(self, toolset=NO_TOOLS, call_policy=policy, interpreter=None)
        return replace(later, relayed=later.is_relayed_by(later.route))

    def is_relayed_by(self, route: Route) -> bool:
        formatted = self.answer_format is not None and route.settings.response_format != "pass"
        return not self.toolset.tools and self.interpreter is None and not formatted

    @property
    def choice_count(self) -> int:
        """The number of answers to make here, one after the other."""
        return 1 if self.relayed else self.chat.n or 1


def read_request(
    chat: ChatCompletionRequest,
    client: str,
    route: Route,
    *,
    interpreter_by_default: bool = False,
    order: Order | None = None,
    hosted: HostedTools = NO_HOSTED_TOOLS,
    deferred: DeferredTools | None = None,
) -> AnswerRequest:
    """Parse ``chat``, which offers the ``hosted`` tools as functions. Raises `BadRequest` naming the place.

    With ``interpreter_by_default`` a request that does not restrict its answer gets the code interpreter, if
    the settings offer it. ``order`` overrides the setting.
    """
    settings = route.settings
    toolset, call_policy = offered_tools(chat)
    interpreter = interpreter_container(chat)
    by_default = interpreter_by_default and settings.interpreter == "on"
    if interpreter is None and by_default and _is_unrestricted(chat):
        interpreter = AutoContainer()
    if interpreter is not None and (chat.n or 1) > 1:
        raise BadRequest("n must be 1 with a code interpreter.", "n")
    request = AnswerRequest(
        chat,
        client,
        route,
        toolset,
        call_policy,
        AnswerFormat.parse(chat.response_format),
        interpreter,
        order or settings.order,
        relayed=False,
        unsupported_tools=tuple(t for t in unsupported_types(chat) if t not in hosted.types),
        hosted=hosted,
        deferred=deferred,
    )
    return replace(request, relayed=request.is_relayed_by(route))


def _is_unrestricted(chat: ChatCompletionRequest) -> bool:
    """Return True if the client asks for one answer and lets the model decide about calls."""
    free = chat.tool_choice in (None, "auto") and chat.function_choice in (None, "auto")
    return free and not chat.is_legacy and (chat.n or 1) == 1
