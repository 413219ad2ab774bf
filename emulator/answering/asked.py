"""What a request asks for, read once: every choice of its answer is made from this one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.answering.answer_format import AnswerFormat
from emulator.answering.tool_choice import INTERPRETER, Choice, interpreter_tool, left_out, offered
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Order, Settings
from emulator.tools.toolset import Toolset


@dataclass(frozen=True)
class Asked:
    """One request of one client."""

    request: ChatCompletionRequest
    client: str
    """Whose containers and files may be used."""
    toolset: Toolset
    choice: Choice
    answer_format: AnswerFormat | None
    interpreter: Mapping[str, Any] | None
    """The code interpreter as a tool, if the model may use it."""
    order: Order
    """Which calls leave together."""
    relayed: bool
    """Nothing is to be emulated: the upstream's own words are the answer, all ``n`` choices at once."""
    dropped: tuple[str, ...] = ()
    """Types of hosted tools that the model is not offered, since nobody could run them here."""

    @property
    def answers(self) -> int:
        """How many answers are to be made here, one after the other."""
        return 1 if self.relayed else self.request.n or 1


def read_request(
    request: ChatCompletionRequest,
    client: str,
    settings: Settings,
    *,
    interpreter_by_default: bool = False,
    order: Order | None = None,
) -> Asked:
    """``interpreter_by_default``: a request that leaves all open gets an interpreter, if that is on here;
    ``order``: what the request says of it, None for nothing.

    Raises `BadRequest` naming the place.
    """
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
    formatted = answer_format is not None and settings.response_format != "pass"
    relayed = not toolset.tools and interpreter is None and not formatted
    return Asked(
        request,
        client,
        toolset,
        choice,
        answer_format,
        interpreter,
        order or settings.order,
        relayed,
        left_out(request),
    )


def _leaves_open(request: ChatCompletionRequest) -> bool:
    """Whether the client leaves it to the model how to answer, once."""
    free = request.tool_choice in (None, "auto") and request.function_choice in (None, "auto")
    return free and not request.is_legacy and (request.n or 1) == 1
