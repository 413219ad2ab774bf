"""Responses that are kept: each with its own input, found by its id or by that of an output item.

Whoever asks gets only what was kept for the same client. A conversation is a chain of responses, each of
which knows the one before it. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from emulator import json_codec
from emulator.errors import BadRequest, NotFound, StoreUnavailable
from emulator.events import AnswerEvent, UpstreamAccepted
from emulator.responses import event_log
from emulator.responses.event_log import EventLog
from emulator.responses.items import Json, quoted
from emulator.responses.writer import ResponseWriter
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed

log = structlog.get_logger()

_MAX_ID = 128


@dataclass(frozen=True)
class StoredResponse:
    begun: Json
    """As it was in front of its first item."""
    response: Json
    input: list[Json]
    rows: Any
    """Its answer's events, as `event_log` writes them."""
    size: int
    tools: list[Json] = field(default_factory=list)
    """Those that its input brought along."""

    @property
    def items(self) -> list[Json]:
        """Its turn of the conversation."""
        return [*self.input, *self.response["output"]]

    def events(self) -> Iterator[Json]:
        """The stream once more, exactly as it was."""
        finished = self.response["completed_at"] or 0
        writer = ResponseWriter(self.begun, self.tools, now=lambda: finished)
        answer: list[AnswerEvent] = event_log.load(self.rows)
        return (event for event in writer.write(answer) if not isinstance(event, UpstreamAccepted))


@dataclass(frozen=True)
class StoredResponses:
    """Without a store nothing is kept, and nothing found."""

    store: KeyValueStore | None
    seconds: float
    max_read: int = 1000
    """Most responses that one request may go back to."""
    max_read_bytes: int = 32 * 2**20

    def keep(
        self,
        client: str,
        response: Json,
        *,
        begun: Json,
        input_items: Sequence[Json],
        tools: Sequence[Json] = (),
        events: EventLog,
    ) -> None:
        """A response that cannot be kept is logged: its client has got it all the same."""
        if self.store is None:
            return
        kept = {"begun": begun, "response": response, "input": input_items, "rows": events.dump()}
        if tools:
            kept["tools"] = tools
        value = json_codec.dumps(kept)
        if len(value) > MAX_VALUE_BYTES:
            log.warning("response not kept: it is too large", bytes=len(value))
            return
        key = response["id"].encode()
        items = {_item(client, item["id"]): key for item in response["output"]}
        try:
            self.store.put({**items, _response(client, response["id"]): value}, self.seconds)
        except StoreFailed as error:
            log.warning("response not kept", reason=str(error))

    def get(self, client: str, key: str) -> StoredResponse:
        """Raises `NotFound`, `StoreUnavailable`."""
        found = self.find(client, key)
        if found is None:
            raise NotFound(f"Response with id {quoted(key)} not found.", "response_id")
        return found

    def delete(self, client: str, key: str) -> None:
        """Raises `NotFound`, `StoreUnavailable`."""
        found = self.get(client, key)
        keys = [
            _response(client, key),
            *(_item(client, item["id"]) for item in found.response["output"]),
        ]
        assert self.store is not None
        try:
            self.store.delete(keys)
        except StoreFailed as error:
            raise StoreUnavailable(f"The response cannot be deleted now: {error}") from error

    def history(self, client: str, key: str | None) -> list[Json]:
        """The items of a response and all before it, in order.

        Raises `BadRequest` (code ``previous_response_not_found``), `StoreUnavailable`.
        """
        reading = _Reading(self, client, "previous_response_id")
        chain: list[Sequence[Json]] = []
        while key is not None:
            found = reading.find(key)
            if found is None:
                message = f"Previous response with id {quoted(key)} not found."
                code = "previous_response_not_found"
                raise BadRequest(message, "previous_response_id", code)
            if found.response.get("status") in ("queued", "in_progress"):
                message = f"Previous response with id {quoted(key)} is still being made."
                raise BadRequest(message, "previous_response_id")
            chain.append(found.items)
            key = found.response["previous_response_id"]
        return [item for items in reversed(chain) for item in items]

    def resolved(self, client: str, items: Sequence[Json]) -> list[Json]:
        """The items, with those that ``item_reference`` ones stand for.

        Raises `NotFound`, `BadRequest`, `StoreUnavailable`.
        """
        reading = _Reading(self, client, "input")
        return [
            self._referred(reading, item["id"], n) if item["type"] == "item_reference" else item
            for n, item in enumerate(items)
        ]

    def with_outputs(self, client: str, items: Sequence[Json]) -> list[Json]:
        """The items, where cells that came back without their outputs have those that were kept.

        PydanticAI never sends them, and who has not asked for them has none to send. Those that cannot be
        found, or lie further back than one request may read, stay as they are. Raises `StoreUnavailable`.
        """
        reading = _Reading(self, client, "input")
        filled = [*items]
        for n, item in enumerate(items):
            if item["type"] == "code_interpreter_call" and "outputs" not in item:
                try:
                    kept = self._item(reading, item["id"])
                except BadRequest:
                    break
                filled[n] = {**item, "outputs": kept.get("outputs")} if kept else item
        return filled

    def _referred(self, reading: _Reading, key: str, place: int) -> Json:
        item = self._item(reading, key)
        if item is None:
            raise NotFound(f"Item with id {quoted(key)} not found.", f"input[{place}].id")
        return item

    def _item(self, reading: _Reading, key: str) -> Json | None:
        """An item of an answer that was kept. Raises `BadRequest`, `StoreUnavailable`."""
        owner = self._get(_item(reading.client, key)) if len(key) <= _MAX_ID else None
        kept = reading.find(owner.decode()) if owner is not None else None
        items = kept.items if kept is not None else []
        return next((item for item in items if item["id"] == key), None)

    def find(self, client: str, key: str) -> StoredResponse | None:
        """Raises `StoreUnavailable`."""
        value = self._get(_response(client, key)) if len(key) <= _MAX_ID else None
        if value is None:
            return None
        try:
            return StoredResponse(**json_codec.loads(value), size=len(value))
        except (ValueError, TypeError) as error:  # of a version with other fields, say
            log.warning("response dropped: it cannot be read", error=str(error))
            return None

    def _get(self, key: str) -> bytes | None:
        if self.store is None:
            return None
        try:
            return self.store.get(key)
        except StoreFailed as error:
            raise StoreUnavailable(f"Responses cannot be read now: {error}") from error


class _Reading:
    """What one request reads: each response once, and not without end."""

    def __init__(self, kept: StoredResponses, client: str, param: str) -> None:
        self.client = client
        self._stored = kept
        self._param = param
        self._found: dict[str, StoredResponse | None] = {}
        self._size = 0

    def find(self, key: str) -> StoredResponse | None:
        """Raises `BadRequest`, `StoreUnavailable`."""
        if key not in self._found:
            found = self._found[key] = self._stored.find(self.client, key)
            self._size += found.size if found is not None else 0
            if len(self._found) > self._stored.max_read or self._size > self._stored.max_read_bytes:
                raise BadRequest("The conversation goes back too far.", self._param)
        return self._found[key]


def _response(client: str, key: str) -> str:
    return f"response:{client}:{key}"


def _item(client: str, key: str) -> str:
    return f"item:{client}:{key}"
