"""What a server accepts as a conversation in the form of Chat Completions.

Results directly follow the message with their calls, one for each call, and nothing else has the tool role:
OpenAI and strict servers answer anything else with 400. Clients of other APIs may send a message between a
call and its result, stop before a result comes, or cut the beginning off. A valid conversation stays as it
is, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.conversation.call_results import NO_RESULT
from emulator.core.protocol import Message

_UNKNOWN_CALL = "The result of a call that is no longer part of this conversation:"


def valid_conversation(messages: Sequence[Message]) -> list[Message]:
    """Return ``messages``, all that the client sent and the proxy recalled, in an order that servers accept.

    A call without a result gets one that says so; a result without a call becomes the user's words. Ids may
    repeat: a result belongs to the last message with such a call.
    """
    groups: list[list[Message]] = []
    """Each message, followed by the results of its calls."""
    unanswered: dict[str, list[list[Message]]] = {}
    """Call id -> the groups that lack its result."""
    for message in messages:
        waiting = unanswered.get(message.tool_call_id or "") if message.role == "tool" else None
        if waiting:
            waiting.pop().append(message)
            continue
        group = [_as_words(message) if message.role == "tool" else message]
        groups.append(group)
        ids = [call.id for call in message.tool_calls or ()]
        unanswered |= {key: [group] * ids.count(key) for key in ids}
    return [one for group in groups for one in _completed(group)]


def _completed(group: list[Message]) -> list[Message]:
    results = [one.tool_call_id for one in group[1:]]
    missing = [call.id for call in group[0].tool_calls or () if call.id not in results]
    return [
        *group,
        *(Message(role="tool", tool_call_id=key, content=NO_RESULT) for key in missing),
    ]


def _as_words(result: Message) -> Message:
    content = result.for_model.content
    if isinstance(content, list):
        return Message(role="user", content=[{"type": "text", "text": _UNKNOWN_CALL}, *content])
    return Message(role="user", content=f"{_UNKNOWN_CALL}\n{content or ''}")
