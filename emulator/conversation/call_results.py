"""Match results with calls, as far as the client's history lets one: before programs and prompts read it.

* A result whose id no call has, also none of a program that waits, belongs to the one open call that its
  turn directly follows.
* A block ``tool_result`` of Messages in a chat's message is a result.

What remains unmatched is noted: histories are cut, and some agents lose results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from emulator import traces
from emulator.core.protocol import Message
from emulator.history import model_view_of

NO_RESULT = "No result of this call came."
"""What a model reads in the place of a result that is nowhere in the history."""
_MAX_NAMED = 5


def matched_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages, the same objects where nothing is to be changed."""
    calls: set[str] = set()
    results: set[str | None] = set()
    has_blocks = False
    for message in messages:
        if message.tool_calls:
            calls.update(call.id for call in message.tool_calls)
        elif message.role == "tool":
            results.add(message.tool_call_id)
        elif type(message.content) is list:
            has_blocks = has_blocks or any(map(_is_result, message.content))
    if calls == results and not has_blocks:
        return messages
    found = [*_matched([*_split(messages)])]
    _note_unmatched(found)
    return found


def _split(messages: Sequence[Message]) -> Iterator[Message]:
    """Messages of a user whose content has blocks of results become results and the rest."""
    for message in messages:
        content = message.content
        blocks = content if isinstance(content, list) and message.role == "user" else []
        results = [*filter(_is_result, blocks)]
        if not results:
            yield message
            continue
        yield from map(_result, results)
        if rest := [part for part in blocks if part not in results]:
            yield message.model_copy(update={"content": rest})


def _is_result(part: dict[str, Any]) -> bool:
    return part.get("type") == "tool_result"


def _result(block: dict[str, Any]) -> Message:
    content = block.get("content")
    if not isinstance(content, str):
        parts = content if isinstance(content, list) else []
        content = [part for part in parts if isinstance(part, dict)]
    key = block.get("tool_use_id")
    return Message(role="tool", tool_call_id=key if isinstance(key, str) else "", content=content)


def _matched(messages: Sequence[Message]) -> Iterator[Message]:
    views = [model_view_of(message) for message in messages if message.model_view]
    known = {key for view in views if view.program for key in view.program.ids}
    open_ids: list[str] = []
    """The calls of the turn that results may follow, which have none yet."""
    for at, message in enumerate(messages):
        if message.role == "assistant":
            open_ids = [call.id for call in message.tool_calls or ()]
            known.update(open_ids)
        elif message.role != "tool":
            open_ids = []
        elif message.tool_call_id in open_ids:
            open_ids.remove(message.tool_call_id)
        elif message.tool_call_id not in known:
            others = _ids_of_results(messages, at)
            candidates = [key for key in open_ids if key not in others]
            if len(candidates) == 1:
                open_ids.remove(candidates[0])
                yield message.model_copy(update={"tool_call_id": candidates[0]})
                continue
        yield message


def _ids_of_results(messages: Sequence[Message], at: int) -> set[str | None]:
    """The ids of the results that follow in the same turn."""
    ids: set[str | None] = set()
    for message in messages[at + 1 :]:
        if message.role != "tool":
            break
        ids.add(message.tool_call_id)
    return ids


def _note_unmatched(messages: Sequence[Message]) -> None:
    if traces.current.get() is None:
        return
    results = {message.tool_call_id for message in messages if message.role == "tool"}
    calls = {call.id: call for message in messages for call in message.tool_calls or ()}
    if missing := [call for key, call in calls.items() if key not in results]:
        functions = [call.as_function for call in missing]
        names = [one.name for one in functions if one is not None]
        listed = ", ".join(dict.fromkeys(names[:_MAX_NAMED])) or "another kind"
        words = f"{len(missing)} of {len(calls)} calls in the history have no result ({listed})."
        way = "the client must send a result for each call, also when the call failed"
        traces.note("missing-result", words, way)
    if unknown := results - calls.keys() - {None}:
        words = f"{len(unknown)} results in the history belong to no call of it."
        traces.note("missing-result", words, "send the messages with the calls, and equal ids")
