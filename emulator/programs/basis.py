"""What a suspended program or cell depends on, and which change of a client's history ends it.

Only a change that its results depend on ends it: another question, another result, another call, a tool that
is gone. Clients rewrite the rest: clocks in instructions, reminders, old results. Knows nothing of sandboxes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.core import json_codec
from emulator.core.protocol import Message
from emulator.programs.call_history import (
    call_positions,
    is_superseded,
    last_result,
    results_of,
    shows_calls,
)
from emulator.programs.program import Call
from emulator.programs.saved import parse_result
from emulator.tools.toolset import Toolset


@dataclass(frozen=True)
class Basis:
    """What a suspended program or cell depends on in its history, besides the calls that it has made."""

    question: str
    """The digest of the client and of the last user message (`question_digest`)."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Call id -> the digest of the result that it has had (`result_digest`)."""

    @classmethod
    def of(cls, client: str, messages: Sequence[Message]) -> Basis:
        """The basis of a program or cell that has read the results after the last user message."""
        questions = (at for at, one in enumerate(messages) if one.asks)
        results = results_of(messages[max(questions, default=0) :])
        digests = {key: result_digest(text) for key, text in results.items()}
        return cls(question_digest(client, messages), digests)


def what_changed(
    messages: Sequence[Message],
    calls: Mapping[str, Call],
    basis: Basis | None,
    client: str,
    toolset: Toolset,
) -> tuple[str, str] | None:
    """The change of a history that ends the suspended program or cell that has made ``calls``, by id.

    Only a change that its results depend on ends it. Returns the metric's label and a sentence, or None.
    Whatever else a client changes does not count: instructions, messages that it adds to a history on its
    own, results that it removes.
    """
    if last_result(messages).tool_call_id not in calls or is_superseded(messages, calls):
        return "superseded", "something else follows its calls"
    if not shows_calls(messages, calls, toolset):
        return "calls", "the client has changed its calls"
    if any(toolset.find(call.name) is None for call in calls.values()):
        return "tools", "the request lacks a tool that it has called"
    start = call_positions(messages, calls)[0]
    answers_another = basis and basis.question != question_digest(client, messages[:start])
    if answers_another or any(one.asks for one in messages[start:]):
        return "question", "the user has asked something else"
    known = basis.results if basis else {}
    results = results_of(messages, known)
    if any(result_digest(text) != known[key] for key, text in results.items()):
        return "results", "the client has changed a result"
    return None


def question_digest(client: str, messages: Sequence[Message]) -> str:
    """A digest of the client and the last user message: what an answer to ``messages`` answers."""
    question = next((one for one in reversed(messages) if one.asks), None)
    content = ["".join(question.text.split()), question.other_parts] if question else []
    return _digest([client, content])


def result_digest(text: str) -> str:
    """A digest of a result's value, which clients may write with other white space."""
    value = parse_result(text)
    return _digest("".join(value.split()) if isinstance(value, str) else value)


def _digest(value: Any) -> str:
    text = json_codec.dumps(value, default=repr, option=json_codec.SORTED)
    return hashlib.sha256(text).hexdigest()
