"""What a request asks for, read once: every choice of its answer is made from this one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from emulator.answering.answer_format import AnswerFormat
from emulator.answering.call_policy import (
    INTERPRETER,
    CallPolicy,
    interpreter_tool,
    offered,
    unsupported_types,
)
from emulator.answering.profiles import Profile, profile_of
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Order, Settings
from emulator.tools.toolset import Toolset
from emulator.upstream.routes import Route


@dataclass(frozen=True)
class AnswerRequest:
    """One request of one client."""

    chat: ChatCompletionRequest
    client: str
    """Whose containers and files may be used."""
    route: Route
    """Which model is asked, and where."""
    toolset: Toolset
    call_policy: CallPolicy
    answer_format: AnswerFormat | None
    interpreter: Mapping[str, Any] | None
    """The code interpreter as a tool, if the model may use it."""
    order: Order
    """Which calls leave together."""
    relayed: bool
    """Nothing is to be emulated: the upstream's own words are the answer, all ``n`` choices at once."""
    finds_stop_string: bool = False
    """The front tells which stop string ended an answer: upstreams that cut there do not say."""
    unsupported_tools: tuple[str, ...] = ()
    """Types of hosted tools that the model is not offered, since nobody could run them here."""

    @property
    def settings(self) -> Settings:
        """As they hold for the upstream that is asked."""
        return self.route.settings

    @cached_property
    def profile(self) -> Profile:
        return profile_of(self.settings, self.route.model)

    def with_route(self, route: Route) -> AnswerRequest:
        """The same request, to another upstream."""
        if route is self.route:
            return self
        return replace(self, route=route, relayed=self.is_relayed_by(route))

    def is_relayed_by(self, route: Route) -> bool:
        formatted = self.answer_format is not None and route.settings.response_format != "pass"
        return not self.toolset.tools and self.interpreter is None and not formatted

    @property
    def choice_count(self) -> int:
        """How many answers are to be made here, one after the other."""
        return 1 if self.relayed else self.chat.n or 1


def read_request(
    chat: ChatCompletionRequest,
    client: str,
    route: Route,
    *,
    interpreter_by_default: bool = False,
    order: Order | None = None,
) -> AnswerRequest:
    """``interpreter_by_default``: a request that leaves all open gets an interpreter, if that is on here;
    ``order``: what the request says of it, None for nothing.

    Raises `BadRequest` naming the place.
    """
    settings = route.settings
    toolset, choice = offered(chat)
    interpreter = interpreter_tool(chat)
    if (
        interpreter is None
        and interpreter_by_default
        and settings.interpreter == "on"
        and _leaves_open(chat)
    ):
        interpreter = {"type": INTERPRETER}
    answer_format = AnswerFormat.parse(chat.response_format)
    request = AnswerRequest(
        chat,
        client,
        route,
        toolset,
        choice,
        answer_format,
        interpreter,
        order or settings.order,
        relayed=False,
        unsupported_tools=unsupported_types(chat),
    )
    return replace(request, relayed=request.is_relayed_by(route))


def _leaves_open(chat: ChatCompletionRequest) -> bool:
    """Whether the client leaves it to the model how to answer, once."""
    free = chat.tool_choice in (None, "auto") and chat.function_choice in (None, "auto")
    return free and not chat.is_legacy and (chat.n or 1) == 1
