"""Stored responses: each with its own input, found by its id or by the id of an output item.

Clients reach only their own responses. A history is a chain of responses, linked by ``previous_response_id``.
Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from emulator import traces
from emulator.core import json_codec, metrics
from emulator.core.errors import BadRequest, NotFound
from emulator.core.events import AnswerEvent, UpstreamAccepted
from emulator.database import (
    MAX_VALUE_BYTES,
    Database,
    DatabaseFailed,
    Documents,
    database_failures,
)
from emulator.fronts.responses import event_log
from emulator.fronts.responses.conversations import are_items
from emulator.fronts.responses.event_log import EventLog
from emulator.fronts.responses.items import Json, quoted
from emulator.fronts.responses.writer import ResponseWriter

log = structlog.get_logger()

LIVE = ("queued", "in_progress")
"""States of a response that has not ended."""
_TOO_LARGE = {"code": "server_error", "message": "The response is too large to be stored."}
STREAM_SECONDS = 3600.0
"""How long a client may resume a stream."""
_MAX_ID = 128
_FIELDS = frozenset(
    "background completed_at created_at id output previous_response_id status".split()
)
"""What is read of every stored response."""
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a record of another shape raises."""


@dataclass(frozen=True)
class StoredResponse:
    response: Json
    input: list[Json]
    size: int

    @property
    def items(self) -> list[Json]:
        """The items of this turn."""
        return [*self.input, *self.response["output"]]


class StoredStream(NamedTuple):
    """What replays a response's events."""

    initial: Json
    """The response before its first item."""
    rows: Any
    """The answer's events, as `event_log` writes them."""
    tools: list[Json]
    """The tools that the input added."""
    pings: list[int]
    """The sequence numbers of the stream's pings, which are not replayed."""


class StoredResponses:
    """Stored for ``seconds``; with 0 nothing is saved and nothing is found."""

    def __init__(
        self,
        database: Database,
        seconds: float,
        *,
        max_read: int = 1000,
        max_read_bytes: int = 32 * 2**20,
    ) -> None:
        """One request may read ``max_read`` earlier responses."""
        self.max_read = max_read
        self.max_read_bytes = max_read_bytes
        self.problem = ""
        """Why the last response was not stored, if it was not."""
        self._responses: Documents[bytes] = Documents(database, "response", seconds=seconds)
        self.is_kept = self._responses.is_kept
        self._items: Documents[str] = Documents(
            database, "item", str, seconds=seconds, max_bytes=32 * 2**20
        )
        stream_seconds = min(seconds, STREAM_SECONDS)
        self._streams: Documents[StoredStream] = Documents(
            database, "stream", StoredStream, seconds=stream_seconds, max_bytes=64 * 2**20
        )

    def save(self, client: str, response: Json, *, input_items: Sequence[Json]) -> bool:
        """Save a response. Once it has ended, it does not change.

        Returns False if that failed: the client gets the response anyway, which then says ``store: false``.
        """
        if not self.is_kept:
            return False
        value = json_codec.dumps({"response": response, "input": input_items})
        if len(value) > MAX_VALUE_BYTES and response.get("background"):
            response = {**response, "output": [], "status": "failed", "error": _TOO_LARGE}
            value = json_codec.dumps({"response": response, "input": input_items})
        if len(value) > MAX_VALUE_BYTES:
            log.warning("response not saved: it is too large", bytes=len(value))
            _note_not_stored("it is too large")
            return False
        key = _key(client, response["id"])
        try:
            self._items.put({_key(client, item["id"]): key for item in response["output"]})
            if response.get("background"):
                self._responses.change(key, lambda old: value if _is_live(old) else old or value)
            else:
                self._responses.put({key: value})
        except DatabaseFailed as error:
            log.warning("response not saved", reason=str(error))
            _note_not_stored("the database failed")
            self.problem = str(error)
            return False
        self.problem = ""
        return True

    def save_stream(
        self,
        client: str,
        initial: Json,
        events: EventLog,
        tools: Sequence[Json] = (),
        pings: Collection[int] = (),
    ) -> None:
        """Save a response's events, as long as its client may resume the stream. A failure is only logged."""
        stream = StoredStream(initial, events.dump(), [*tools], sorted(pings))
        if len(self._streams.dump(stream)) > MAX_VALUE_BYTES:
            log.warning("the stream of a response cannot be resumed: it is too large")
            return
        try:
            self._streams.put({_key(client, initial["id"]): stream})
        except DatabaseFailed as error:
            log.warning("the stream of a response cannot be resumed", reason=str(error))

    def events(self, client: str, response: Json) -> Iterator[Json]:
        """Replay the stream exactly, except for its pings. Raises `NotFound`, `StoreUnavailable`."""
        with database_failures("The events cannot be read"):
            stream = self._streams.get(_key(client, response["id"]))
        if stream is None:
            message = (
                "The events of this response are not stored: it was neither streamed nor made in the "
                f"background, or it is older than {STREAM_SECONDS / 60:g} minutes."
            )
            raise NotFound(message, "response_id")
        try:
            finished = response["completed_at"] or 0
            writer = ResponseWriter(
                stream.initial, stream.tools, pings=stream.pings, now=lambda: finished
            )
            answer: list[AnswerEvent] = event_log.load(stream.rows)
            events = [e for e in writer.write(answer) if not isinstance(e, UpstreamAccepted)]
        except _DAMAGED as error:
            log.warning("stream not replayed: it cannot be read", error=repr(error))
            raise NotFound("The events of this response cannot be read.", "response_id") from error
        return iter(events)

    def get(self, client: str, key: str) -> StoredResponse:
        """Raises `NotFound`, `StoreUnavailable`."""
        stored = self.find(client, key)
        if stored is None:
            raise NotFound(f"Response with id {quoted(key)} not found.", "response_id")
        return stored

    def delete(self, client: str, key: str) -> None:
        """Raises `NotFound`, `StoreUnavailable`."""
        stored = self.get(client, key)
        with database_failures("The response cannot be deleted"):
            self._responses.delete([_key(client, key)])
            self._items.delete([_key(client, item["id"]) for item in stored.response["output"]])
            self._streams.delete([_key(client, key)])

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
            if stored.response.get("status") in LIVE:
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
        owner = None
        if len(key) <= _MAX_ID:
            with database_failures("Responses cannot be read"):
                owner = self._items.get(_key(reader.client, key))
        stored = reader.find(owner.rpartition(":")[2]) if owner is not None else None
        items = stored.items if stored is not None else []
        return next((item for item in items if item["id"] == key), None)

    def find(self, client: str, key: str) -> StoredResponse | None:
        """Raises `StoreUnavailable`."""
        if len(key) > _MAX_ID:
            return None
        with database_failures("Responses cannot be read"):
            value = self._responses.get(_key(client, key))
        return None if value is None else _read(value)


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


def _read(value: bytes) -> StoredResponse | None:
    try:
        fields = json_codec.loads(value)
        stored = StoredResponse(**fields, size=len(value))
        response = stored.response
        if not (are_items(stored.items) and isinstance(response["id"], str)):
            raise ValueError("its items are invalid")
        if not isinstance(response["previous_response_id"], str | None):
            raise ValueError("its previous response is invalid")
        if missing := _FIELDS - response.keys():
            raise ValueError(f"it has no {min(missing)}")
        return stored
    except _DAMAGED as error:  # written by a version with other fields, or by another program
        log.warning("response ignored: it cannot be read", error=str(error))
        return None


def _is_live(value: bytes | None) -> bool:
    stored = None if value is None else _read(value)
    return stored is None or stored.response.get("status") in LIVE


def _note_not_stored(why: str) -> None:
    metrics.NOT_STORED.inc()
    words = f"The response was not stored, because {why}: its id cannot continue the conversation."
    traces.note("not-stored", words, "send the whole conversation with the next request")


def _key(client: str, key: str) -> str:
    return f"{client}:{key}"
