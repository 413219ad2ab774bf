"""Build the first request to the model for an emulated answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.answering.answer_request import AnswerRequest
from emulator.answering.constrained.schema import constraint, reply_schema
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.prompt import instruct
from emulator.answering.tiny.turn import DEFAULTS as TINY_DEFAULTS
from emulator.answering.tiny.turn import tiny_turn
from emulator.answering.transcript import ModelMessage
from emulator.programs.ended import EndedProgram

# These fields would break a turn in which the model writes Python.
NOT_IN_TOOL_TURNS = frozenset({"n", "stop", "response_format", "logprobs", "top_logprobs"})


def first_turn(
    request: AnswerRequest,
    *,
    habit: str,
    ended: EndedProgram | None = None,
    session: InterpreterSession | None = None,
    new_files: Sequence[str] = (),
) -> tuple[list[ModelMessage], dict[str, Any]]:
    """The messages, and the other fields of the upstream request."""
    chat, toolset, choice = request.chat, request.toolset, request.call_policy
    profile, settings = request.profile, request.settings
    format_text = request.answer_format.instructions if request.answer_format else ""
    withheld_fields = profile.withholds(settings.drop_fields) | NOT_IN_TOOL_TURNS
    fields = chat.upstream_fields(withheld_fields)
    fields["stream_options"] = {"include_usage": True}
    if profile.few_shot and settings.grammar and not toolset.tools and session is None:
        # Such an upstream can constrain even a very small model to a schema.
        fields["response_format"] = chat.response_format
    constrained = request.is_constrained and session is None
    if session is None and profile.few_shot and toolset.tools:
        turn = tiny_turn(chat.messages, toolset, choice, ended, constrained=constrained)
        messages, schema = turn.messages, turn.schema
        if format_text and schema is None:
            messages = [
                *messages[:-1],
                {**messages[-1], "content": f"{messages[-1]['content']}\n\n{format_text}"},
            ]
        limited = "max_completion_tokens" in fields
        defaults = {k: v for k, v in TINY_DEFAULTS.items() if not (limited and k == "max_tokens")}
        fields = defaults | fields
    else:
        schema = None
        if constrained:
            schema = reply_schema(toolset.tools, choice)
        messages = instruct(
            chat.messages,
            toolset,
            choice,
            profile,
            format_text,
            ended=ended,
            habit=habit,
            sandbox=session.describe_sandbox() if session else None,
            constrained=schema is not None,
            deferred=request.deferred,
            new_files=new_files,
        )
    if schema is not None:
        fields |= constraint(profile.grammar, schema)
    return messages, profile.rename_fields(fields)
