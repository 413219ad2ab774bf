"""What a request asks for, read once: every choice of its answer is made from this one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from emulator.answering.answer_format import AnswerFormat
from emulator.answering.profiles import Profile, profile_of
from emulator.answering.tool_choice import INTERPRETER, Choice, interpreter_tool, left_out, offered
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Order, Settings
from emulator.tools.toolset import Toolset
from emulator.upstream.routes import Route


@dataclass(frozen=True)
class Asked:
    """One request of one client."""

    request: ChatCompletionRequest
    client: str
    """Whose containers and files may be used."""
    route: Route
    """Which model is asked, and where."""
    toolset: Toolset
    choice: Choice
    answer_format: AnswerFormat | None
    interpreter: Mapping[str, Any] | None
    """The code interpreter as a tool, if the model may use it."""
    order: Order
    """Which calls leave together."""
    relayed: bool
    """Nothing is to be emulated: the upstream's own words are the answer, all ``n`` choices at once."""
    stops_here: bool = False
    """The front tells which stop string ended an answer: upstreams that cut there do not say."""
    dropped: tuple[str, ...] = ()
    """Types of hosted tools that the model is not offered, since nobody could run them here."""

    @property
    def settings(self) -> Settings:
        """As they hold for the upstream that is asked."""
        return self.route.settings

    @cached_property
    def profile(self) -> Profile:
        return profile_of(self.settings, self.route.model)

    def instead(self, route: Route) -> Asked:
        """The same request, to another upstream."""
        if route is self.route:
            return self
        return replace(self, route=route, relayed=self.is_relayed_by(route))

    def is_relayed_by(self, route: Route) -> bool:
        formatted = self.answer_format is not None and route.settings.response_format != "pass"
        return not self.toolset.tools and self.interpreter is None and not formatted

    @property
    def answers(self) -> int:
        """How many answers are to be made here, one after the other."""
        return 1 if self.relayed else self.request.n or 1


def read_request(
    request: ChatCompletionRequest,
    client: str,
    route: Route,
    *,
    interpreter_by_default: bool = False,
    order: Order | None = None,
) -> Asked:
    """``interpreter_by_default``: a request that leaves all open gets an interpreter, if that is on here;
    ``order``: what the request says of it, None for nothing.

    Raises `BadRequest` naming the place.
    """
    settings = route.settings
    toolset, choice = offered(request)
    interpreter = interpreter_tool(request)
    if (
        interpreter is None
        and interpreter_by_default
        and settings.interpreter == "on"
        and _leaves_open(request)
    ):
        interpreter = {"type": INTERPRETER}
    answer_format = AnswerFormat.parse(request.response_format)
    asked = Asked(
        request,
        client,
        route,
        toolset,
        choice,
        answer_format,
        interpreter,
        order or settings.order,
        relayed=False,
        dropped=left_out(request),
    )
    return replace(asked, relayed=asked.is_relayed_by(route))


def _leaves_open(request: ChatCompletionRequest) -> bool:
    """Whether the client leaves it to the model how to answer, once."""
    free = request.tool_choice in (None, "auto") and request.function_choice in (None, "auto")
    return free and not request.is_legacy and (request.n or 1) == 1
