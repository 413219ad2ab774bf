"""Ask a very small model: its prompt, and the schema that constrains its reply.

Such a model copies well and composes badly. So it sees examples first, then few functions directly before the
request; strings and numbers are copied from the request; and a result is presented as the answer, which the
model only has to say. Measured in docs/accuracy.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator.answering.ways.json_way import JSON
from emulator.answering.ways.schema import constraint, reply_schema
from emulator.answering.ways.shortlist import shortlist
from emulator.answering.ways.way import Prompt, PromptInputs, Way
from emulator.core.protocol import Message
from emulator.rendering.program_transcript import model_history
from emulator.rendering.transcript import ModelMessage, joined, render

DEFAULTS = {"temperature": 0, "max_tokens": 512}
"""Defaults for a request: sampling spoils copying, and prose may never end."""

RESULTS = ("tool", "function")

_TURN = re.compile(r"^=== (system|user|assistant)\n", re.MULTILINE)


@dataclass(frozen=True)
class TinyWay(Way):
    any_call_acts: bool = True
    constrains: bool = True
    """The reply may be constrained to a JSON object."""

    def prompt(self, inputs: PromptInputs, fields: dict[str, Any]) -> Prompt:
        """If results came last and no call is required, the model is only asked to report them. Otherwise it
        makes one call at most: with a list to fill it repeats the same call."""
        request = inputs.request
        chat, toolset, choice = request.chat, request.toolset, request.call_policy
        if not toolset.tools:
            if request.settings.grammar:  # such an upstream can constrain even a very small model
                fields = {**fields, "response_format": chat.response_format}
            return super().prompt(inputs, fields)
        limited = "max_completion_tokens" in fields
        fields = {k: v for k, v in DEFAULTS.items() if not (limited and k == "max_tokens")} | fields
        question, results = _last_question(chat.messages)
        if chat.messages[-1].role in RESULTS and not choice.required:
            content = render("tiny_results.jinja", request=question, results=results)
            messages = [{"role": "user", "content": joined(content, inputs.format_text)}]
            return Prompt(messages, fields, Way(self.any_call_acts))
        # The next call may need values from a result.
        source = "\n".join([question, *results])
        offered = shortlist(toolset, question)
        policy = replace(choice, one_at_a_time=True)
        schema = reply_schema(offered.tools, policy, source=source) if self.constrains else None
        reply = Way(self.any_call_acts) if schema is None else JSON
        examples = render(
            "tiny.jinja",
            tools=offered.tools,
            evident=offered.evident,
            choice=str(choice),
            constrained=schema is not None,
        )
        history = model_history(chat.messages, toolset, inputs.ended, message=reply.message)
        messages = few_shot(examples, history)
        if schema is not None:
            fields |= constraint(request.profile.grammar, schema)
        elif inputs.format_text:
            last = messages[-1]
            messages[-1] = {**last, "content": joined(last["content"], inputs.format_text)}
        return Prompt(messages, fields, reply)


def _last_question(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The text of the last user message, and the results after it."""
    last = max((n for n, m in enumerate(messages) if m.role == "user"), default=None)
    question = "" if last is None else messages[last].text
    return question, [m.for_model.text for m in messages[last or 0 :] if m.role in RESULTS]


def opening_messages(*, constrained: bool = True) -> list[ModelMessage]:
    """The turns at the start of every prompt for such a model."""
    values = {"tools": (), "evident": False, "choice": "auto", "constrained": constrained}
    return few_shot(render("tiny.jinja", **values), [])[:-1]


def few_shot(examples: str, messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """The turns of a rendered ``tiny.jinja``, followed by the conversation.

    The last turn, which offers the functions, is put before the last user message; an opening system message
    after the first turn. No client can open a turn: tools are one line each and start with a Python name.
    """
    _, *parts = _TURN.split(examples)
    turns: list[ModelMessage] = [
        {"role": role, "content": text.strip("\n")}
        for role, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    offer = turns.pop()["content"]
    system = [str(m["content"]) for m in messages[:1] if m["role"] == "system"]
    turns[0]["content"] = "\n\n".join([turns[0]["content"], *system])
    rest = [dict(m) for m in messages[len(system) :]]
    request = rest.pop()["content"] if rest and rest[-1]["role"] == "user" else ""
    return [*turns, *rest, {"role": "user", "content": _prepend(offer, request)}]


def _prepend(offer: str, request: Any) -> Any:
    if isinstance(request, str):
        return f"{offer}\n\n{request}"
    return [{"type": "text", "text": f"{offer}\n\n"}, *request]
