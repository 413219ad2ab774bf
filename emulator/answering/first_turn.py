"""The first request to the model for an answer in which it may write Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from emulator.answering.asked import Asked
from emulator.answering.bench import Bench
from emulator.answering.grammar.fields import grammar_fields
from emulator.answering.prompt import instruct
from emulator.answering.tiny.turn import DEFAULTS as TINY_DEFAULTS
from emulator.answering.tiny.turn import tiny_turn
from emulator.answering.transcript import ModelMessage, Passage

# Fields that would spoil a turn in which the model is to write Python.
NOT_IN_TOOL_TURNS = frozenset({"n", "stop", "response_format", "logprobs", "top_logprobs"})


def first_turn(
    asked: Asked,
    *,
    habit: str,
    engines: Collection[str],
    passages: Sequence[Passage] = (),
    bench: Bench | None = None,
) -> tuple[list[ModelMessage], dict[str, Any]]:
    """What the model is told, and the other fields of the upstream request."""
    request, toolset, choice = asked.request, asked.toolset, asked.choice
    profile, settings = asked.profile, asked.settings
    told_format = asked.answer_format.instructions if asked.answer_format else ""
    dropped = profile.withholds(settings.drop_fields) | NOT_IN_TOOL_TURNS
    fields = request.passed_on(dropped)
    fields["stream_options"] = {"include_usage": True}
    no_code = not toolset.tools and bench is None
    if profile.few_shot and settings.grammar and no_code:
        # Such an upstream can hold even a very small model to a schema.
        fields["response_format"] = request.response_format
    if bench is not None or not (profile.few_shot and toolset.tools):
        messages = instruct(
            request.messages,
            toolset,
            choice,
            profile,
            told_format,
            passages=passages,
            habit=habit,
            engines=engines,
            workplace=bench.workplace() if bench else None,
        )
        if settings.grammar and bench is None:
            fields |= grammar_fields(profile.grammar, toolset, choice)
        return messages, profile.written(fields)
    turn = tiny_turn(request.messages, toolset, choice, passages)
    if turn.grammar is not None and settings.grammar:
        fields["grammar"] = turn.grammar
    messages = turn.messages
    if told_format and turn.grammar is None:
        messages = [
            *messages[:-1],
            {**messages[-1], "content": f"{messages[-1]['content']}\n\n{told_format}"},
        ]
    limited = "max_completion_tokens" in fields
    defaults = {k: v for k, v in TINY_DEFAULTS.items() if not (limited and k == "max_tokens")}
    return messages, profile.written(defaults | fields)
