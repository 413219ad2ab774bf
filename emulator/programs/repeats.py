"""Find calls that a model makes again and again with the same result. Knows nothing of prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.core.protocol import FunctionCall, Message
from emulator.programs.call_history import parsed_call, results_of
from emulator.programs.program import Call

#: So many messages with the same call and the same result are a loop.
MAX_REPEATS = 2
#: The limit for tools that a client polls.
MAX_POLLS = 10
_POLLING_NAME = re.compile(
    r"(?:^|[^a-z])(?:wait|poll|sleep|status|state|progress|check|refresh|retry|ping|watch|monitor|is|has)"
    r"(?:ing|ed|s)?(?![a-z])"
)


@dataclass(frozen=True)
class _Round:
    """One message whose calls are all equal and have the same result."""

    name: str
    arguments: str
    result: str


def repeated_calls(messages: Sequence[Message]) -> list[Call]:
    """The call that the last messages repeated, each time with the same result; [] if there is none.

    Small models get stuck in such loops. It is no loop if the result changes, or if another call is in
    between: tests run again after an edit.
    """
    last_user = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    rounds = list(_rounds(messages[last_user:]))
    last = rounds[-1] if rounds else None
    if last is None:
        return []
    count = next((n for n, one in enumerate(reversed(rounds)) if one != last), len(rounds))
    if count < (MAX_POLLS if _is_polling(last.name) else MAX_REPEATS):
        return []
    _, arguments = parsed_call(FunctionCall(name=last.name, arguments=last.arguments))
    return [Call(last.name, arguments)] if isinstance(arguments, dict) else []


def _rounds(messages: Sequence[Message]) -> Iterator[_Round | None]:
    """The messages whose calls have results; None for a message with different calls or results."""
    results = results_of(messages)
    seen: set[str] = set()
    for message in messages:
        calls = [call for call in message.tool_calls or () if call.id not in seen]
        seen.update(call.id for call in calls)
        rounds = {
            _Round(call.as_function.name, call.as_function.arguments, results[call.id])
            for call in calls
            if call.as_function is not None and call.id in results
        }
        if rounds:
            yield rounds.pop() if len(rounds) == 1 else None


def _is_polling(name: str) -> bool:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return _POLLING_NAME.search(words) is not None
