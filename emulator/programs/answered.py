"""What a history says of a program's calls: which program they are of, and what has been answered.

What was answered counts, wherever it stands. Clients answer one call of three, split the calls of one message
into several messages, answer late, and put messages of their own between. Knows nothing of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from emulator import json_codec
from emulator.programs.program import Recorded
from emulator.protocol import HistoryCall, Message

#: How often a call is asked for again while no new result comes.
MOST_ROUNDS = 2


class Kept(Protocol):
    """What is needed of `resume.Saved`."""

    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def recorded(self) -> tuple[Recorded, ...]: ...


_Kept = TypeVar("_Kept", bound=Kept)


def answered_program(
    messages: Sequence[Message], find: Callable[[str], _Kept | None]
) -> _Kept | None:
    """The program whose results end ``messages``, at the furthest point that they show.

    ``find`` gives what is kept under the id of a call. None if there is none, if its calls are not what it
    made, or if the model has gone on to something else.
    """
    last = messages[-1]
    if last.role != "tool" or not last.tool_call_id:
        return None
    kept = find(last.tool_call_id)
    if kept is None:
        return None
    for key in _further(messages, set(kept.ids)):
        later = find(key)
        if later is not None and later.ids[: len(kept.ids)] == kept.ids:
            kept = later
    ids = set(kept.ids)
    return kept if _as_made(messages, kept) and not _left_behind(messages, ids) else None


def results_of(messages: Sequence[Message], ids: Collection[str]) -> dict[str, str]:
    """The last result of each call in the whole history."""
    return {
        message.tool_call_id: message.text
        for message in messages
        if message.role == "tool" and message.tool_call_id in ids and message.tool_call_id
    }


def fruitless_rounds(messages: Sequence[Message], ids: Collection[str]) -> int:
    """How often calls have been asked for again since the last new result."""
    asked: set[str] = set()
    answered: set[str] = set()
    rounds = 0
    for message in messages:
        calls = {call.id for call in message.tool_calls or () if call.id in ids}
        if calls:
            rounds += calls <= asked
            asked |= calls
        elif message.role == "tool" and message.tool_call_id in ids:
            if message.tool_call_id not in answered:
                rounds = 0
            answered.add(message.tool_call_id or "")
    return rounds


def _further(messages: Sequence[Message], ids: Collection[str]) -> Iterator[str]:
    """An id of each later message with calls that are not among ``ids``."""
    begun = False
    for message in messages:
        calls = [call.id for call in message.tool_calls or ()]
        begun = begun or any(key in ids for key in calls)
        if begun and calls and not any(key in ids for key in calls):
            yield calls[0]


def _as_made(messages: Sequence[Message], kept: Kept) -> bool:
    """Whether the history has the program's calls as it made them."""
    made = {
        key: (one.call.name, one.call.arguments)
        for key, one in zip(kept.ids, kept.recorded, strict=True)
    }
    shown = [call for message in messages for call in message.tool_calls or () if call.id in made]
    return bool(shown) and all(made[call.id] == _called(call) for call in shown)


def _called(call: HistoryCall) -> tuple[str, Any] | None:
    function = call.as_function
    if function is None:
        return None
    try:
        return function.name, json_codec.loads(function.arguments)
    except json_codec.NotJSON:
        return function.name, None


def _left_behind(messages: Sequence[Message], ids: Collection[str]) -> bool:
    """Whether the model has said or called something else since the program's last call."""
    for message in reversed(messages):
        if message.role != "assistant":
            continue
        if any(call.id in ids for call in message.tool_calls or ()):
            return False
        if message.tool_calls or message.function_call or message.text.strip():
            return True
    return True
