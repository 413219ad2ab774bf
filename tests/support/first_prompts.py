"""The first prompt of a request, without an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from emulator.answering.first_turn import first_turn
from emulator.answering.ways.way import PromptInputs
from emulator.conversation.answer_request import read_request
from emulator.conversation.call_policy import CallPolicy
from emulator.core.protocol import ChatCompletionRequest
from emulator.settings.settings import Settings
from emulator.upstream.routes import Routes


class TinyPrompt(NamedTuple):
    messages: list[dict[str, Any]]
    schema: Any
    """Of the reply; None if it is not constrained."""


def tiny_prompt(
    messages: Sequence[Any], tools: Sequence[Any], choice: CallPolicy | None = None
) -> TinyPrompt:
    """The prompt for a very small model."""
    model = "smollm2-135m-instruct"
    body = {"model": model, "messages": messages, "tools": tools}
    route = Routes(Settings(profile="tiny")).of(model)
    request = read_request(ChatCompletionRequest.model_validate(body), "", route)
    prompt = first_turn(
        PromptInputs(request=replace(request, call_policy=choice or CallPolicy()), habit="python")
    )
    form = prompt.fields.get("response_format")
    # As the profile's `grammar` asks for it.
    schema = form and (form["schema"] if "schema" in form else form["json_schema"]["schema"])
    return TinyPrompt(prompt.messages, schema)
