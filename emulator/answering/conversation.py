"""What the model saw of a conversation beyond the client's messages, so that each prompt starts with the
last one.

A client knows calls, results and answers. The model also saw its programs with their output, replies that
it was asked to repair, and a line about the syntax of its calls. These are stored:

    ended:...  a program that ended        by its last call and that call's result
    again:...  a repair exchange           by the first call, or the digest, of the answer that followed
    habit:...  the dialect of the prompt   by the messages before the first answer
    label:...  the model labels its calls  by the messages before the first answer

A history without stored records is shown as the client has it. Knows nothing of upstreams.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import structlog

from emulator import json_codec
from emulator.answering.program_transcript import program_transcript
from emulator.answering.transcript import ModelMessage, TranscriptSpan
from emulator.cached_property import cached_property
from emulator.events import ToolCall
from emulator.programs.ended import (
    EndedProgram,
    drop_overlaps,
    load_ended,
    locate_program,
    save_ended,
    shown_programs,
    shows_only_calls,
    storage_keys,
)
from emulator.protocol import Message
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed
from emulator.tools.toolset import Toolset

log = structlog.get_logger()


class Conversation:
    """One request's history and the records that are stored for it."""

    def __init__(
        self, store: KeyValueStore | None, client: str, messages: Sequence[Message], model: str = ""
    ) -> None:
        self._store = store
        self._messages = messages
        self._client = client
        self._start = f"{client}\n{model}"

    def transcript_spans(
        self, toolset: Toolset, ended: EndedProgram | None = None
    ) -> list[TranscriptSpan]:
        """What the model saw instead of the client's messages; ``ended`` is a program or cell that just
        ended."""
        values = [value for key, value in self._stored.items() if key.startswith("ended:")]
        programs = load_ended(values, self._messages)
        if ended is not None and not shows_only_calls(ended):
            place = locate_program(ended, self._messages)
            if place is not None and place not in programs:
                programs.append(place)
                if self._store is not None:
                    save_ended(self._store, self._client, ended, self._messages)
        # What was stored is what the model saw; the history has it for other replicas.
        programs = drop_overlaps([*programs, *shown_programs(self._messages)])
        program_spans = [program_transcript(one, self._messages, toolset) for one in programs]
        inside = {at for one in programs for at in range(one.start + 1, one.stop)}
        repair_spans = [one for one in self._repairs() if one.start not in inside]
        return sorted([*repair_spans, *program_spans], key=lambda one: (one.start, one.stop))

    def save_repair_messages(
        self, exchange: Sequence[ModelMessage], words: str, calls: Sequence[ToolCall]
    ) -> None:
        """Store the unusable replies and the repair requests that came before an answer."""
        if self._store is None or not exchange:
            return
        if calls:
            key = self._repair_key(calls[0].id)
        else:
            answer = Message(role="assistant", content=words)
            *_, digest = digests(self._start, [*self._messages, answer])
            key = self._repair_key(digest)
        self._store_value(key, json_codec.dumps(list(exchange)))

    def habit(self, current: str) -> str:
        """The dialect with which this conversation started; ``current`` if it starts now."""
        known = self._stored.get(self._habit_key)
        if known is not None:
            return known.decode(errors="replace")
        has_started = any(message.role == "assistant" for message in self._messages)
        if has_started or self._store is None or current == "python":
            return "python"
        self._store_value(self._habit_key, current.encode())
        return current

    @property
    def uses_label(self) -> bool:
        """Whether the model has labelled a block in this conversation."""
        has_started = any(message.role == "assistant" for message in self._messages)
        return has_started and self._label_key in self._stored

    def save_label(self) -> None:
        if self._label_key not in self._stored:
            self._store_value(self._label_key, b"1")

    @cached_property
    def _stored(self) -> dict[str, bytes]:
        """All records of this history, in one read."""
        if self._store is None:
            return {}
        try:
            programs = storage_keys(self._client, self._messages)
            return self._store.get_many(
                [*programs, *self._answers, self._habit_key, self._label_key]
            )
        except StoreFailed as error:
            log.warning("the history is shown as the client has it", reason=str(error))
            self._store = None  # nor is anything stored
            return {}

    @cached_property
    def _digests(self) -> list[str]:
        return list(digests(self._start, self._messages))

    @property
    def _habit_key(self) -> str:
        return f"habit:{self._opening}"

    @property
    def _label_key(self) -> str:
        return f"label:{self._opening}"

    @cached_property
    def _opening(self) -> str:
        """The digest of the messages before the first answer."""
        roles = [message.role for message in self._messages]
        opening = roles.index("assistant") if "assistant" in roles else len(roles)
        return self._digests[opening - 1] if opening else ""

    @cached_property
    def _answers(self) -> dict[str, int]:
        """The repair key of each answer -> the answer's place."""
        answers: dict[str, int] = {}
        for at, message in enumerate(self._messages):
            if message.role == "assistant":
                calls = message.tool_calls or ()
                answers[self._repair_key(calls[0].id if calls else self._digests[at])] = at
        return answers

    def _repair_key(self, answer: str) -> str:
        """The key of the exchange before an answer; ``answer`` is its first call id or its digest."""
        return f"again:{self._owner}:{hashlib.sha256(_bytes(answer)).hexdigest()}"

    @cached_property
    def _owner(self) -> str:
        return hashlib.sha256(_bytes(self._client)).hexdigest()

    def _repairs(self) -> Iterator[TranscriptSpan]:
        """The repair exchanges before the answers of the history."""
        for key, at in self._answers.items():
            value = self._stored.get(key)
            if value is not None and (exchange := _load(value)) is not None:
                yield TranscriptSpan(at, at, exchange)

    def _store_value(self, key: str, value: bytes) -> None:
        if self._store is None or len(value) > MAX_VALUE_BYTES:
            return
        try:
            self._store.put({key: value})
        except StoreFailed as error:
            log.warning("not stored for later turns", reason=str(error))


def digests(start: str, messages: Sequence[Message]) -> Iterator[str]:
    """For each message, a digest of the conversation up to and including it.

    Only fields that clients send back unchanged count.
    """
    running = hashlib.sha256(start.encode(errors="surrogatepass"))
    for message in messages:
        text = message.text.strip()
        if message.role == "assistant":  # a front may separate the parts of an answer
            text = "".join(text.split())
        fields: list[Any] = [message.role, text, message.tool_call_id]
        fields.append([call.id for call in message.tool_calls or ()])
        if message.function_call is not None:
            fields.append(message.function_call.name)
        running.update(json_codec.dumps(fields))
        yield running.hexdigest()


def _bytes(value: Any) -> bytes:
    return repr(value).encode(errors="surrogatepass")


def _load(value: bytes) -> list[ModelMessage] | None:
    try:
        exchange = json_codec.loads(value)
    except json_codec.NotJSON:
        return None
    is_valid = isinstance(exchange, list) and all(
        isinstance(m, dict) and m.keys() == {"role", "content"} for m in exchange
    )
    return exchange if is_valid else None
