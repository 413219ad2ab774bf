"""Stored responses: each with its own input, found by its id or by the id of an output item.

Clients reach only their own responses. A history is a chain of responses, linked by ``previous_response_id``.
Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from emulator import json_codec
from emulator.errors import BadRequest, NotFound
from emulator.events import AnswerEvent, UpstreamAccepted
from emulator.responses import event_log
from emulator.responses.conversations import are_items
from emulator.responses.event_log import EventLog
from emulator.responses.items import Json, quoted
from emulator.responses.writer import ResponseWriter
from emulator.storage.key_value import (
    MAX_VALUE_BYTES,
    KeyValueStore,
    StoreFailed,
    store_failures,
)

log = structlog.get_logger()

_MAX_ID = 128
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a record of another shape raises."""


@dataclass(frozen=True)
class StoredResponse:
    initial: Json
    """The response before its first item."""
    response: Json
    input: list[Json]
    rows: Any
    """The answer's events, as `event_log` writes them."""
    size: int
    tools: list[Json] = field(default_factory=list)
    """The tools that the input added."""
    pings: list[int] = field(default_factory=list)
    """The sequence numbers of the stream's pings, which are not replayed."""

    @property
    def items(self) -> list[Json]:
        """The items of this turn."""
        return [*self.input, *self.response["output"]]

    def events(self) -> Iterator[Json]:
        """Replay the stream exactly, except for its pings. Raises `NotFound` for a record that is damaged."""
        try:
            finished = self.response["completed_at"] or 0
            writer = ResponseWriter(
                self.initial, self.tools, pings=self.pings, now=lambda: finished
            )
            answer: list[AnswerEvent] = event_log.load(self.rows)
            events = [e for e in writer.write(answer) if not isinstance(e, UpstreamAccepted)]
        except _DAMAGED as error:
            log.warning("stream not replayed: it cannot be read", error=repr(error))
            raise NotFound("The events of this response cannot be read.", "response_id") from error
        return iter(events)


@dataclass(frozen=True)
class StoredResponses:
    """Without a store, nothing is saved and nothing is found."""

    store: KeyValueStore | None
    seconds: float
    max_read: int = 1000
    """The maximum number of earlier responses that one request may read."""
    max_read_bytes: int = 32 * 2**20

    def save(
        self,
        client: str,
        response: Json,
        *,
        initial: Json,
        input_items: Sequence[Json],
        tools: Sequence[Json] = (),
        events: EventLog,
        pings: Collection[int] = (),
    ) -> None:
        """Save a response. A failure is only logged, because the client gets the response anyway."""
        if self.store is None:
            return
        fields = {
            "begun": initial,
            "response": response,
            "input": input_items,
            "rows": events.dump(),
        }
        if tools:
            fields["tools"] = tools
        if pings:
            fields["pings"] = sorted(pings)
        value = json_codec.dumps(fields)
        if len(value) > MAX_VALUE_BYTES:
            log.warning("response not saved: it is too large", bytes=len(value))
            return
        key = response["id"].encode()
        items = {_item(client, item["id"]): key for item in response["output"]}
        try:
            self.store.put({**items, _response(client, response["id"]): value}, self.seconds)
        except StoreFailed as error:
            log.warning("response not saved", reason=str(error))

    def get(self, client: str, key: str) -> StoredResponse:
        """Raises `NotFound`, `StoreUnavailable`."""
        stored = self.find(client, key)
        if stored is None:
            raise NotFound(f"Response with id {quoted(key)} not found.", "response_id")
        return stored

    def delete(self, client: str, key: str) -> None:
        """Raises `NotFound`, `StoreUnavailable`."""
        stored = self.get(client, key)
        keys = [
            _response(client, key),
            *(_item(client, item["id"]) for item in stored.response["output"]),
        ]
        assert self.store is not None
        with store_failures("The response cannot be deleted"):
            self.store.delete(keys)

    def history(self, client: str, key: str | None) -> list[Json]:
        """Return the items of a response and of all earlier ones, in order.

        Raises `BadRequest` (code ``previous_response_not_found``) or `StoreUnavailable`.
        """
        reader = _BoundedReader(self, client, "previous_response_id")
        chain: list[Sequence[Json]] = []
        while key is not None:
            stored = reader.find(key)
            if stored is None:
                message = f"Previous response with id {quoted(key)} not found."
                code = "previous_response_not_found"
                raise BadRequest(message, "previous_response_id", code)
            if stored.response.get("status") in ("queued", "in_progress"):
                message = f"Previous response with id {quoted(key)} is still in progress."
                raise BadRequest(message, "previous_response_id")
            chain.append(stored.items)
            key = stored.response["previous_response_id"]
        return [item for items in reversed(chain) for item in items]

    def resolved(self, client: str, items: Sequence[Json]) -> list[Json]:
        """Replace each ``item_reference`` with the stored item.

        Raises `NotFound`, `BadRequest` or `StoreUnavailable`.
        """
        reader = _BoundedReader(self, client, "input")
        return [
            self._referenced(reader, item["id"], n) if item["type"] == "item_reference" else item
            for n, item in enumerate(items)
        ]

    def with_outputs(self, client: str, items: Sequence[Json]) -> list[Json]:
        """Add the stored outputs to cells that came back without outputs.

        PydanticAI never sends outputs, and a client that did not request them has none. Cells that are not
        found, or that lie further back than one request may read, stay unchanged. Raises `StoreUnavailable`.
        """
        reader = _BoundedReader(self, client, "input")
        filled = [*items]
        for n, item in enumerate(items):
            if item["type"] == "code_interpreter_call" and "outputs" not in item:
                try:
                    stored_item = self._item(reader, item["id"])
                except BadRequest:
                    break
                if stored_item:
                    filled[n] = {**item, "outputs": stored_item.get("outputs")}
        return filled

    def _referenced(self, reader: _BoundedReader, key: str, place: int) -> Json:
        item = self._item(reader, key)
        if item is None:
            raise NotFound(f"Item with id {quoted(key)} not found.", f"input[{place}].id")
        return item

    def _item(self, reader: _BoundedReader, key: str) -> Json | None:
        """Return a stored item, or None. Raises `BadRequest` or `StoreUnavailable`."""
        owner = self._get(_item(reader.client, key)) if len(key) <= _MAX_ID else None
        stored = reader.find(owner.decode(errors="replace")) if owner is not None else None
        items = stored.items if stored is not None else []
        return next((item for item in items if item["id"] == key), None)

    def find(self, client: str, key: str) -> StoredResponse | None:
        """Raises `StoreUnavailable`."""
        value = self._get(_response(client, key)) if len(key) <= _MAX_ID else None
        if value is None:
            return None
        try:
            fields = json_codec.loads(value)
            stored = StoredResponse(initial=fields.pop("begun"), **fields, size=len(value))
            response, initial = stored.response, stored.initial
            valid = are_items(stored.items) and are_items(initial.get("output", []))
            if not (valid and isinstance(response["previous_response_id"], str | None)):
                raise ValueError("its items are invalid")
            if missing := initial.keys() - response.keys():
                raise ValueError(f"it has no {min(missing)}")
            return stored
        except _DAMAGED as error:  # written by a version with other fields, or by another program
            log.warning("response ignored: it cannot be read", error=str(error))
            return None

    def _get(self, key: str) -> bytes | None:
        if self.store is None:
            return None
        with store_failures("Responses cannot be read"):
            return self.store.get(key)


class _BoundedReader:
    """Reads responses for one request: each only once, and within the limits of `StoredResponses`."""

    def __init__(self, stored: StoredResponses, client: str, param: str) -> None:
        self.client = client
        self._stored = stored
        self._param = param
        self._responses: dict[str, StoredResponse | None] = {}
        self._size = 0

    def find(self, key: str) -> StoredResponse | None:
        """Raises `BadRequest`, `StoreUnavailable`."""
        if key not in self._responses:
            stored = self._responses[key] = self._stored.find(self.client, key)
            self._size += stored.size if stored is not None else 0
            limits = self._stored
            if len(self._responses) > limits.max_read or self._size > limits.max_read_bytes:
                raise BadRequest("The conversation is too long.", self._param)
        return self._responses[key]


def _response(client: str, key: str) -> str:
    return f"response:{client}:{key}"


def _item(client: str, key: str) -> str:
    return f"item:{client}:{key}"
