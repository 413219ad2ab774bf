"""What the conversation so far says about calls. Knows nothing of prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator import json_codec
from emulator.programs.program import Call
from emulator.protocol import Message

#: So many messages with the same call and the same result are a circle.
CIRCLE = 2
#: Whoever waits for something asks for it again and again; so often at most.
POLLS = 10
_POLLING = re.compile(
    r"(?:^|[^a-z])(?:wait|poll|sleep|status|state|progress|check|refresh|retry|ping|watch|monitor|is|has)"
    r"(?:ing|ed|s)?(?![a-z])"
)


@dataclass(frozen=True)
class _Round:
    """One message whose calls are all the same one, with the same result."""

    name: str
    arguments: str
    result: str


def barren_calls(messages: Sequence[Message]) -> list[Call]:
    """The call that the last messages made again and again, each time with the same result.

    Small models get caught in such circles. A call whose result changes is no circle, nor is one with
    anything else called in between: tests are run again after an edit.
    """
    spoken = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    rounds = list(_rounds(messages[spoken:]))
    last = rounds[-1] if rounds else None
    if last is None:
        return []
    count = next((n for n, one in enumerate(reversed(rounds)) if one != last), len(rounds))
    if count < (POLLS if _polls(last.name) else CIRCLE):
        return []
    arguments = _object(last.arguments)
    return [] if arguments is None else [Call(last.name, arguments)]


def _rounds(messages: Sequence[Message]) -> Iterator[_Round | None]:
    """The messages with answered calls; None for one with different calls or results."""
    results = {m.tool_call_id: m.text for m in messages if m.role == "tool" and m.tool_call_id}
    seen: set[str] = set()
    for message in messages:
        calls = [call for call in message.tool_calls or () if call.id not in seen]
        seen.update(call.id for call in calls)
        made = {
            _Round(call.as_function.name, call.as_function.arguments, results[call.id])
            for call in calls
            if call.as_function is not None and call.id in results
        }
        if made:
            yield made.pop() if len(made) == 1 else None


def _polls(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return _POLLING.search(spaced) is not None


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json_codec.loads(text)
    except json_codec.NotJSON:
        return None
    return value if isinstance(value, dict) else None
