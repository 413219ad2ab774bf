"""Build the first request to the model for an emulated answer."""

from __future__ import annotations

from emulator.answering.ways.choice import way_of
from emulator.answering.ways.way import Prompt, PromptInputs
from emulator.rendering.transcript import merged, with_one_system

# These fields would break a turn in which the model writes Python.
NOT_IN_TOOL_TURNS = frozenset({"n", "stop", "response_format", "logprobs", "top_logprobs"})


def first_turn(inputs: PromptInputs) -> Prompt:
    """The messages, the other fields of the upstream's request, and how the reply is read."""
    request = inputs.request
    profile = request.profile
    fields = request.upstream_fields.sent(request.chat.plain_fields(), NOT_IN_TOOL_TURNS)
    fields["stream_options"] = {"include_usage": True}
    way = way_of(request, has_interpreter=inputs.session is not None)
    prompt = way.prompt(inputs, fields)
    messages = prompt.messages
    if not request.keeps_later_system:
        messages = merged(with_one_system(messages))
    return prompt._replace(messages=messages, fields=profile.rename_fields(prompt.fields))
