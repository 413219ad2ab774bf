"""Read the events of a chat's stream as chunks. The rest of the proxy trusts a `Chunk` without looking again.

Each field that is read later is checked here. Of a value that does not fit there are three kinds:

* its meaning is clear: it is written as OpenAI writes it (a missing ``index``, ``content`` as a list of
  parts, a whole ``message`` instead of a ``delta``, the legacy ``function_call``);
* nobody needs it: it is dropped (usage or log probabilities of another type, a second role);
* otherwise the upstream has failed, not the proxy: `UpstreamFailed` quotes the value.

What is written as OpenAI writes it stays as it is, so that clients get unknown fields too. Sans-IO.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from emulator.core import json_codec
from emulator.core.errors import UpstreamFailed
from emulator.core.events import new_id
from emulator.upstream.failures import QUOTED, quote, recognize_context_error
from emulator.upstream.interface import Chunk, Received, characters_of

_MAX_DEPTH = 64
"""Levels of nested JSON. More cannot be written again (orjson stops at 254 levels)."""
_LABELS = {"system_fingerprint", "service_tier"}
_MAX_COUNT = 2**53
_MAX_MESSAGE = 2000
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


class ChunkReader:
    """Reads the chunks of one reply and records them in ``received``."""

    def __init__(self, received: Received, choices: int) -> None:
        """``choices`` is the number of choices that the request asks for."""
        self._received = received
        self._choices = choices
        self._index: int | None = None
        """The upstream's number of the only choice."""
        self._roles: set[int] = set()
        """The choices whose role was read."""
        self._base: dict[str, Any] = {}
        """The id and time of chunks without."""

    def read(self, event: bytes) -> Chunk:
        """Raises `UpstreamFailed`."""
        chunk = _parse(event)
        choices = chunk.get("choices") or []
        if type(choices) is not list:
            raise _misfit("choices", choices)
        for position, choice in enumerate(choices):
            self._read_choice(choice, position)
        if self._choices == 1 and choices:
            if self._index is None:
                self._index = choices[0]["index"]
            if self._index or len(choices) > 1 or choices[0]["index"]:
                choices = self._only_choice(choices)
        chunk["choices"] = choices
        if "usage" in chunk:
            chunk["usage"] = _mended_usage(chunk["usage"])
        if type(chunk.get("id")) is not str or type(chunk.get("created")) is not int:
            self._complete(chunk)
        chunk |= {name: None for name in _LABELS & chunk.keys() if type(chunk[name]) is not str}
        self._received.characters += characters_of(choices)
        self._received.usage = chunk.get("usage") or self._received.usage
        return chunk

    def _only_choice(self, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of several choices the first, as number 0."""
        return [{**choice, "index": 0} for choice in choices if choice["index"] == self._index][:1]

    def _complete(self, chunk: Chunk) -> None:
        """Write the id and the time that the chunk lacks."""
        self._base = self._base or {"id": new_id("chatcmpl-"), "created": int(time.time())}
        for name, value in self._base.items():
            if type(chunk.get(name)) is not type(value):
                chunk[name] = value

    def _read_index(self, choice: Any, position: int) -> int:
        if type(choice) is not dict:
            raise _misfit("a choice", choice)
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = position if index is None else _integer(index)
        if index is None or index >= self._choices > 1:
            raise _misfit("the index of a choice", choice["index"])
        return index

    def _read_choice(self, choice: Any, position: int) -> None:
        index = choice["index"] = self._read_index(choice, position)
        if choice.get("delta") is None:
            _use_message(choice)
        reason = choice.get("finish_reason")
        if reason is not None:
            if type(reason) is not str:
                raise _misfit("finish_reason", reason)
            if reason:
                self._received.has_finish = True
            else:
                choice["finish_reason"] = None
        if choice.get("logprobs"):
            choice["logprobs"] = _mended_logprobs(choice["logprobs"])
        delta = choice["delta"]
        if type(delta) is not dict:
            raise _misfit("delta", delta)
        if not (index in self._roles and all(map(_is_plain, delta, delta.values()))):
            delta = _read_delta(delta)
            if index not in self._roles:  # clients add up the roles of deltas, as any text
                delta = {"role": "assistant", **delta}
                self._roles.add(index)
            choice["delta"] = delta
        if not self._received.has_output:
            self._received.has_output = any(v for name, v in delta.items() if name != "role")


def _parse(event: bytes) -> Chunk:
    try:
        chunk = json_codec.loads(event)
    except json_codec.NotJSON as error:
        raise _failure("an event that is not JSON", event) from error
    if type(chunk) is not dict:
        raise _failure("an event that is not a JSON object", event)
    if event.count(b"[") + event.count(b"{") > _MAX_DEPTH and _depth_exceeds(chunk):
        raise _failure(f"an event with more than {_MAX_DEPTH} levels", event)
    if error_field := chunk.get("error"):
        reported = f"The upstream reported an error: {_error_message(error_field)}"
        code = error_field.get("code") if type(error_field) is dict else None
        kind = error_field.get("type") if type(error_field) is dict else None
        hint = UpstreamFailed(reported, code=str(code), type=str(kind))
        found = recognize_context_error(hint)
        # OpenRouter and llama.cpp write a status as the code. 500 would say that this proxy has failed.
        status = code if type(code) is int and 400 <= code < 600 and code != 500 else 502
        raise found if found is not hint else UpstreamFailed(reported, status=status)
    return chunk


def _use_message(choice: dict[str, Any]) -> None:
    """An upstream that does not stream sends the whole message."""
    message = choice.pop("message", None)
    choice["delta"] = {} if message is None else message
    if type(message) is dict:
        choice["finish_reason"] = choice.get("finish_reason") or "stop"
        calls = message.get("tool_calls")
        for index, call in enumerate(calls if type(calls) is list else ()):
            if type(call) is dict:
                call["index"] = index


def _read_delta(delta: dict[str, Any]) -> dict[str, Any]:
    """The delta with every field in OpenAI's form."""
    read: dict[str, Any] = {}
    for name, value in delta.items():
        if _is_plain(name, value) or (value is None and name != "role"):
            read[name] = value
        else:
            read |= _READERS[name](name, value, read)
    return read


def _is_plain(name: str, value: Any) -> bool:
    return name not in _READERS or (type(value) is str and name in _TEXTS)


def _read_text(name: str, value: Any, read: Mapping[str, Any]) -> dict[str, Any]:
    """Mistral sends a list of parts: docs.mistral.ai, "Reasoning"."""
    parts = value if type(value) is list else [value]
    words, thoughts = "", ""
    for part in parts:
        if type(part) is str:
            words += part
        elif type(part) is not dict:
            raise _misfit(name, value)
        elif "thinking" in part:
            thoughts += _read_text("thinking", part["thinking"], {})["thinking"]
        elif type(part.get("text")) is str:
            words += part["text"]
        elif part.get("type") != "reference":  # the number of a source, without text
            raise _misfit(name, value)
    if name == "thinking":
        return {name: words + thoughts}
    text = {name: words} if words or not thoughts else {}
    if not thoughts:
        return text
    return {"reasoning_content": (read.get("reasoning_content") or "") + thoughts, **text}


def _read_calls(name: str, value: Any, _read: Mapping[str, Any]) -> dict[str, Any]:
    calls = [value] if type(value) is dict else value
    if not calls and not isinstance(calls, bool | int | float):
        return {}
    if type(calls) is not list:
        raise _misfit(name, value)
    return {name: [_read_call(call) for call in calls]}


def _read_call(call: Any) -> dict[str, Any]:
    if type(call) is not dict:
        raise _misfit("an item of tool_calls", call)
    function = call.get("function")
    if not (function is None or type(function) is dict):
        raise _misfit("the function of a tool call", function)
    if function and not isinstance(function.get("name"), str | None):
        raise _misfit("the name of a tool call", function["name"])
    read = dict(call)
    # Without a number, the assembler tells calls apart by their ids and names.
    if type(index := read.get("index")) is not int and "index" in read:
        read["index"] = _integer(index)
    if not isinstance(read.get("id"), str | None):
        read["id"] = str(read["id"])[:QUOTED]
    if not isinstance(read.get("type"), str | None):
        del read["type"]
    return read


def _read_function_call(_name: str, value: Any, _read: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [_read_call({"index": 0, "function": value})]}


_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_READERS: dict[str, Callable[[str, Any, Mapping[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(_TEXTS, _read_text),
    "role": lambda *_: {},
    "tool_calls": _read_calls,
    "function_call": _read_function_call,
}


def _integer(value: Any) -> int | None:
    """A number that may be written as a float or as text; None if it is not one."""
    try:
        number = int(value) if isinstance(value, str | float | int) else -1
    except (ValueError, OverflowError):
        return None
    return number if number >= 0 else None


def _mended_usage(usage: Any) -> dict[str, Any] | None:
    """The usage with all counts and without details of another type; None if it has no counts."""
    if type(usage) is not dict:
        return None
    prompt, completion, total = (
        count if count is not None and count < _MAX_COUNT else None
        for count in (_integer(usage.get(name)) for name in _COUNTS)
    )
    if prompt is None and completion is None:
        return None
    counts = (prompt or 0, completion or 0, total or (prompt or 0) + (completion or 0))
    unreadable = [name for name in _DETAILS if usage.get(name) and not _has_counts(usage[name])]
    readable = {name: value for name, value in usage.items() if name not in unreadable}
    return readable | dict(zip(_COUNTS, counts, strict=True))


def _has_counts(details: Any) -> bool:
    """Return True if the values are counts. Only what is no count by its name may be an object."""
    return type(details) is dict and all(
        value is None
        or type(value) is int
        or (type(value) is dict and not name.endswith("_tokens"))
        for name, value in details.items()
    )


def _mended_logprobs(logprobs: Any) -> dict[str, Any] | None:
    """The log probabilities with the fields that clients require; None if they are of another type."""
    lists = logprobs.values() if type(logprobs) is dict else ["no list"]
    if not all(tokens is None or _are_tokens(tokens) for tokens in lists):
        return None
    return {
        name: tokens and [{"top_logprobs": [], **token} for token in tokens]
        for name, tokens in logprobs.items()
    }


def _are_tokens(tokens: Any) -> bool:
    return type(tokens) is list and all(
        type(token) is dict
        and type(token.get("token")) is str
        and type(token.get("logprob")) in (int, float)
        and _are_bytes(token.get("bytes"))
        and _are_tokens(token.get("top_logprobs", []))
        for token in tokens
    )


def _are_bytes(numbers: Any) -> bool:
    return numbers is None or (
        type(numbers) is list and all(type(number) is int for number in numbers)
    )


def _depth_exceeds(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) in (dict, list)
        ]
        if not level:
            return False
    return True


def _error_message(error: Any) -> str:
    message = error.get("message") if type(error) is dict else error
    return message[:_MAX_MESSAGE] if type(message) is str else quote(error)


def _failure(what: str, event: bytes) -> UpstreamFailed:
    return UpstreamFailed(f"The upstream sent {what}: {quote(event)}")


def _misfit(place: str, value: Any) -> UpstreamFailed:
    return UpstreamFailed(
        f"The upstream sent a chunk that cannot be read: {place} is {quote(value)}"
    )
