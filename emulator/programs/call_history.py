"""Find the calls and results of a program in a client's history. Knows nothing of sandboxes.

A result counts wherever it is in the history: clients answer one call of three, split the calls of one
message into several messages, answer late, and insert messages of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from emulator.core import json_codec
from emulator.core.protocol import FunctionCall, Message
from emulator.programs.failures import Failure, failure_of
from emulator.programs.program import Call
from emulator.programs.saved import parse_result
from emulator.tools import expansion
from emulator.tools.schema import Definitions, Schema
from emulator.tools.toolset import Toolset

#: How often pending calls are sent again while no new result arrives.
MAX_UNANSWERED_ROUNDS = 2


def last_result(messages: Sequence[Message]) -> Message:
    """The last message, before those that clients append to results."""
    return next((m for m in reversed(messages) if not m.is_remark), messages[-1])


def parsed_call(function: FunctionCall | None) -> tuple[str, Any]:
    """Name and arguments of a call in a history; the arguments stay a string if they are not JSON."""
    if function is None:
        return "", None
    try:
        return function.name, json_codec.loads(function.arguments)
    except json_codec.NotJSON:
        return function.name, function.arguments


def shows_calls(messages: Sequence[Message], calls: Mapping[str, Call], toolset: Toolset) -> bool:
    """Return True if the history has some of ``calls`` (by id), and each with its name and arguments
    unchanged.

    Fields that a client adds do not count if the tool does not accept them (Langroid adds ``request``, the
    tool's name), or if they have the schema's default (Claude Code adds ``replace_all=False``).
    """
    matching_calls = [
        call for message in messages for call in message.tool_calls or () if call.id in calls
    ]
    return bool(matching_calls) and all(
        _shows(call.as_function, calls[call.id], toolset) for call in matching_calls
    )


def _shows(function: FunctionCall | None, call: Call, toolset: Toolset) -> bool:
    name, arguments = parsed_call(function)
    tool = toolset.find(call.name)
    if tool is None or not isinstance(arguments, dict):
        return (name, arguments) == (call.name, call.arguments)
    accepted = {
        field: value
        for field, value in arguments.items()
        if field in call.arguments or tool.members.schema_of(field) is not None
    }
    definitions = tool.parameters.get("$defs", {})
    return name == call.name and _is_same(accepted, call.arguments, tool.parameters, definitions)


def _is_same(shown: Any, sent: Any, schema: Schema, definitions: Definitions) -> bool:
    """Return True if ``shown`` is ``sent``, perhaps with defaults of the schema filled in."""
    if isinstance(shown, dict) and isinstance(sent, dict):
        members = expansion.members(schema, definitions)
        return sent.keys() <= shown.keys() and all(
            _is_same(value, sent[field], member, definitions)
            if field in sent
            else isinstance(member, dict) and value == member.get("default")
            for field, value in shown.items()
            for member in [members.schema_of(field) or {}]
        )
    if isinstance(shown, list) and isinstance(sent, list) and len(shown) == len(sent):
        items = expansion.expand(schema, definitions).get("items", {})
        return all(_is_same(*both, items, definitions) for both in zip(shown, sent, strict=True))
    return bool(shown == sent)


def call_positions(messages: Sequence[Message], ids: Collection[str]) -> list[int]:
    """The indices of the messages that have one of the calls ``ids``."""
    return [n for n, m in enumerate(messages) if any(call.id in ids for call in m.tool_calls or ())]


def results_of(messages: Sequence[Message], ids: Collection[str] | None = None) -> dict[str, str]:
    """The text of the last result of each call, or of each call in ``ids``."""
    return {
        m.tool_call_id: m.text
        for m in messages
        if m.role == "tool" and m.tool_call_id and (ids is None or m.tool_call_id in ids)
    }


def failures_of(messages: Sequence[Message], ids: Collection[str]) -> dict[str, Failure | None]:
    """How each call in ``ids`` that has a result went wrong, by the last result; None for the others."""
    return {
        m.tool_call_id: failure_of(m.text, parse_result(m.text), is_error=m.is_error is True)
        for m in messages
        if m.role == "tool" and m.tool_call_id and m.tool_call_id in ids
    }


def unanswered_rounds(messages: Sequence[Message], ids: Collection[str]) -> int:
    """How often calls have been sent again since the last new result."""
    sent: set[str] = set()
    answered: set[str] = set()
    rounds = 0
    for message in messages:
        calls = {call.id for call in message.tool_calls or () if call.id in ids}
        if calls:
            rounds += calls <= sent
            sent |= calls
        elif message.role == "tool" and message.tool_call_id in ids:
            if message.tool_call_id not in answered:
                rounds = 0
            answered.add(message.tool_call_id or "")
    return rounds


def is_superseded(messages: Sequence[Message], ids: Collection[str]) -> bool:
    """Return True if the model has written or called something else since the program's last call."""
    for message in reversed(messages):
        if message.role != "assistant":
            continue
        if any(call.id in ids for call in message.tool_calls or ()):
            return False
        if message.tool_calls or message.function_call or message.text.strip():
            return True
    return True
