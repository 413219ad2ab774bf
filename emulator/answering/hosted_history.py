"""What a client's history lacks of hosted calls and cells, so that they are never made twice and each prompt
starts with the last one.

A client of chat completions knows only its own calls and the answer's words. Before an answer ends, the
messages between the client's last message and the answer are stored:

    hidden:...  the hosted calls and cells of an answer,          by the answer's first call of the client, or
                and their results                                 by the digest of the answer
    result:...  the result of one hosted call                     by the call's id

The next request gets them inserted, unless its history has them itself (Responses, Messages). The
results serve requests that are repeated after a failure: a resumed program makes calls with the same ids.
Those with images also replace the text that these two APIs have for them. Knows nothing of tools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from emulator import json_codec
from emulator.answering.conversation import digests
from emulator.cached_property import cached_property
from emulator.events import ToolCall
from emulator.hosted.hosted_tool import IMAGE, HostedResult
from emulator.programs.call_history import last_result
from emulator.protocol import Message
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed

log = structlog.get_logger()

_TOO_LARGE = "The result of this call was too large to be stored for this request."


@dataclass(frozen=True)
class HostedHistory:
    """The records of one request's history; ``messages`` are as the client sent them."""

    store: KeyValueStore | None
    client: str
    model: str
    messages: Sequence[Message]
    shows_cells: bool = False
    """The client's history has the cells of earlier answers."""

    def restored(self) -> list[Message]:
        """The history with the hosted calls, and the images of their results, that it lacks."""
        if self.store is None or not self._answers:
            return list(self.messages)
        try:
            values = self.store.get_many(self._answers.keys())
            images = self._images(self.store)
        except StoreFailed as error:
            log.warning("the history lacks hosted calls", reason=str(error))
            return list(self.messages)
        stored = {self._answers[key]: _load(value) for key, value in values.items()}
        known = {call.id for message in self.messages for call in message.tool_calls or ()}
        restored: list[Message] = []
        for at, sent in enumerate(self.messages):
            message, hidden = images.get(at, sent), stored.get(at)
            calls = {c.id for m in hidden or () for c in m.tool_calls or () if c.function}
            if not hidden or calls & known:
                restored.append(message)
                continue
            known |= calls
            restored += _joined(hidden, message)
        return restored

    def _images(self, store: KeyValueStore) -> dict[int, Message]:
        """The messages whose results had images: place -> the result as it was. Raises `StoreFailed`."""
        lacking = {
            at: self._key("result", message.tool_call_id)
            for at, message in enumerate(self.messages)
            if message.role == "tool" and message.tool_call_id and IMAGE in message.text
        }
        values = store.get_many(lacking.values())
        results = {at: _load_result(values[key]) for at, key in lacking.items() if key in values}
        return {
            at: self.messages[at].model_copy(update={"content": result.content})
            for at, result in results.items()
            if result is not None and result.text == self.messages[at].text
        }

    def save(self, hidden: Sequence[Message], words: str, calls: Sequence[str]) -> None:
        """Store the messages that the client's history will lack, before the answer ends.

        The answer, as the client gets it, is ``words`` and its own ``calls``. The last of the ``hidden``
        messages that is the assistant's becomes the answer's message.
        """
        if self.store is None:
            return
        *_, digest = digests(
            self._start, [*self.messages, Message(role="assistant", content=words)]
        )
        key = self._key("hidden", calls[0] if calls else digest)
        if self.shows_cells and not any(message.role == "tool" for message in hidden):
            hidden = hidden[-1:]
        if len(hidden) == 1:
            if not calls:  # the same answer in the same words may have been given with calls before
                with suppress(StoreFailed):
                    self.store.delete([key])
            return
        value = _dump(hidden, set(calls))
        if len(value) > MAX_VALUE_BYTES:
            log.warning("results of hosted calls are too large to be stored", bytes=len(value))
            value = _dump(hidden, set(calls), with_results=False)
        self._put(key, value)

    def result(self, call: str) -> HostedResult | None:
        """The stored result of a call that this request repeats."""
        if self.store is None or not self._resumes:
            return None
        try:
            value = self.store.get(self._key("result", call))
        except StoreFailed:
            return None
        return None if value is None else _load_result(value)

    def save_result(self, call: str, result: HostedResult) -> None:
        if self._resumes or not isinstance(result.content, str):
            value = {"content": result.content, "is_error": result.is_error}
            self._put(self._key("result", call), json_codec.dumps(value))

    @property
    def _resumes(self) -> bool:
        """Whether the same request would make the same calls again: a resumed program does, a model not."""
        return last_result(self.messages).role == "tool"

    @property
    def _start(self) -> str:
        return f"{self.client}\n{self.model}"

    @cached_property
    def _answers(self) -> dict[str, int]:
        """The key of each answer -> the answer's place."""
        answers: dict[str, int] = {}
        for at, digest in enumerate(digests(self._start, self.messages)):
            message = self.messages[at]
            if message.role == "assistant":
                for name in [call.id for call in message.tool_calls or ()] or [digest]:
                    answers[self._key("hidden", name)] = at
        return answers

    def _key(self, kind: str, name: str) -> str:
        # Call ids are no secret: the client is part of the key.
        text = json_codec.dumps([self.client, name])
        return f"{kind}:{hashlib.sha256(text).hexdigest()}"

    def _put(self, key: str, value: bytes) -> None:
        if self.store is None or len(value) > MAX_VALUE_BYTES:
            return
        try:
            self.store.put({key: value})
        except StoreFailed as error:
            log.warning("hosted calls are not stored for later requests", reason=str(error))


def _joined(hidden: Sequence[Message], answer: Message) -> list[Message]:
    """The hidden messages; the assistant's last one is ``answer``, with its own calls as they are there."""
    last = max(at for at, message in enumerate(hidden) if message.role == "assistant")
    own = {call.id: call for call in answer.tool_calls or ()}
    calls = [
        call if call.function else own[call.id]
        for call in hidden[last].tool_calls or ()
        if call.function or call.id in own
    ]
    changes: dict[str, Any] = {"content": hidden[last].content}
    if calls or own:
        changes["tool_calls"] = calls
    return [*hidden[:last], answer.model_copy(update=changes), *hidden[last + 1 :]]


def _dump(messages: Sequence[Message], own: set[str], *, with_results: bool = True) -> bytes:
    """``own`` are the ids of the client's calls, whose names and arguments the client's history has."""
    dumped = [message.model_dump(exclude_unset=True) for message in messages]
    for message, fields in zip(messages, dumped, strict=True):
        if message.role == "tool":
            fields["is_error"] = message.is_error or not with_results
            fields["content"] = message.content if with_results else _TOO_LARGE
        elif calls := fields.get("tool_calls"):
            fields["tool_calls"] = [{"id": c["id"]} if c["id"] in own else c for c in calls]
    return json_codec.dumps(dumped)


def _load(value: bytes) -> list[Message]:
    try:
        return [Message.model_validate(fields) for fields in json_codec.loads(value)]
    except (ValueError, TypeError) as error:
        log.warning("the history lacks hosted calls", reason=str(error))
        return []


def _load_result(value: bytes) -> HostedResult | None:
    try:
        return HostedResult(**json_codec.loads(value))
    except (ValueError, TypeError):
        return None


def assistant_message(words: str, calls: Sequence[ToolCall], reasoning: str = "") -> Message:
    """The model's reply, as a client's history has it."""
    fields: dict[str, Any] = {"role": "assistant", "content": words}
    if calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": _function(call),
                "caller": call.caller or None,
            }
            for call in calls
        ]
        if reasoning:  # DeepSeek wants its reasoning back together with its calls
            fields["reasoning_content"] = reasoning
    return Message.model_validate(fields)


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": json_codec.dumps(call.arguments).decode()}


def result_message(call: str, result: HostedResult) -> Message:
    return Message(role="tool", tool_call_id=call, content=result.content, is_error=result.is_error)
