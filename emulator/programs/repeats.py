"""What the conversation so far says about calls. Knows nothing of prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson

from emulator.programs.driver import Call
from emulator.protocol import Message


def barren_calls(messages: Sequence[Message]) -> list[Call]:
    """Calls made at least twice since the user last spoke, each time with the same result.

    Small models get caught in such circles; a call whose result changes is no circle.
    """
    spoken = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    calls: dict[str, tuple[str, str]] = {}
    results: Counter[tuple[str, str]] = Counter()
    seen: dict[tuple[str, str], set[str]] = {}
    for message in messages[spoken:]:
        for call in message.tool_calls or ():
            if call.called is not None:
                calls[call.id] = (call.called.name, call.called.arguments)
        if message.role == "tool" and (made := calls.get(message.tool_call_id or "")):
            results[made] += 1
            seen.setdefault(made, set()).add(message.text)
    return [
        Call(name, orjson.loads(arguments))
        for (name, arguments), count in results.items()
        if count > 1 and len(seen[name, arguments]) == 1 and _is_object(arguments)
    ]


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
