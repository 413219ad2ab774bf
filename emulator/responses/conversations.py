"""Conversations: items stored under an id. Each response in a conversation adds its turn.

A conversation is one value in the store, with the store's size limit. Changes are atomic, also across
processes and replicas. Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from emulator import json_codec
from emulator.errors import BadRequest, NotFound
from emulator.events import new_id
from emulator.responses.items import MAX_ITEMS, Json, quoted
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, store_failures
from emulator.storage.key_value.leases import LEASE_SECONDS, LeaseTaken, exclusive_lease

log = structlog.get_logger()

_MAX_ID = 128


@dataclass(frozen=True)
class StoredConversation:
    id: str
    created_at: int
    metadata: dict[str, str]
    items: list[Json]

    def json(self) -> Json:
        fields = {"id": self.id, "created_at": self.created_at, "metadata": self.metadata}
        return {**fields, "object": "conversation"}

    def item(self, key: str) -> Json:
        """Raises `NotFound`."""
        for item in self.items:
            if item["id"] == key:
                return item
        raise NotFound(f"Item with id {quoted(key)} not found.", "item_id")


_STORED = TypeAdapter(StoredConversation)


@dataclass(frozen=True)
class Conversations:
    """Clients reach only their own conversations. Without a store there are none."""

    store: KeyValueStore | None
    seconds: float

    def create(
        self, client: str, items: Sequence[Json], metadata: dict[str, str]
    ) -> StoredConversation:
        """Raises `BadRequest`, `StoreUnavailable`."""
        conversation = StoredConversation(new_id("conv_"), int(time.time()), metadata, [*items])
        if self.store is None:
            raise BadRequest("Conversations need a store: set store (docs/settings.md).")
        value = _serialized(conversation)
        with store_failures("The conversation cannot be stored"):
            self.store.put({_key(client, conversation.id): value}, self.seconds)
        return conversation

    def get(self, client: str, key: str) -> StoredConversation:
        """Raises `NotFound`, `StoreUnavailable`."""
        value = None
        if self.store is not None and len(key) <= _MAX_ID:
            with store_failures("Conversations cannot be read"):
                value = self.store.get(_key(client, key))
        return _read(key, value)

    def update(self, client: str, key: str, metadata: dict[str, str]) -> StoredConversation:
        """Raises as `add`."""
        return self._changed(client, key, lambda old: replace(old, metadata=metadata))

    def add(self, client: str, key: str, items: Sequence[Json]) -> StoredConversation:
        """Raises `NotFound`, `StoreUnavailable`, or `BadRequest` if the conversation becomes too large."""
        return self._changed(client, key, lambda old: replace(old, items=[*old.items, *items]))

    @contextmanager
    def turn(self, client: str, key: str, items: Sequence[Json]) -> Iterator[None]:
        """The conversation for one response alone, which was asked for after ``items``.

        Waits as long as a process that was killed keeps its lease. Raises `BadRequest` with OpenAI's code
        ``conversation_locked`` if another response still works on it then, or has added its turn; `NotFound`,
        `StoreUnavailable`.
        """
        message = "Another request works on this conversation. Retry in a few seconds."
        locked = BadRequest(message, "conversation", "conversation_locked")
        assert self.store is not None
        lease = f"conversation_lease:{client}:{key}"
        try:
            with (
                store_failures("The conversation cannot be used"),
                exclusive_lease(self.store, lease, LEASE_SECONDS + 1),
            ):
                if len(self.get(client, key).items) != len(items):
                    raise locked
                yield
        except LeaseTaken:
            raise locked from None

    def remove(self, client: str, key: str, item_id: str) -> StoredConversation:
        """Raises as `add`."""

        def without(old: StoredConversation) -> StoredConversation:
            old.item(item_id)
            return replace(old, items=[item for item in old.items if item["id"] != item_id])

        return self._changed(client, key, without)

    def delete(self, client: str, key: str) -> None:
        """Raises `NotFound`, `StoreUnavailable`."""
        self.get(client, key)
        assert self.store is not None
        with store_failures("The conversation cannot be deleted"):
            self.store.delete([_key(client, key)])

    def _changed(
        self, client: str, key: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation:
        changed = self.get(client, key)
        assert self.store is not None

        def write(value: bytes | None) -> bytes:
            nonlocal changed
            changed = change(_read(key, value))
            return _serialized(changed)

        with store_failures("The conversation cannot be stored"):
            self.store.change(_key(client, key), write, self.seconds)
        return changed


def _read(key: str, value: bytes | None) -> StoredConversation:
    """Raises `NotFound`, also for a record that is damaged."""
    if value is not None:
        try:
            conversation = _STORED.validate_json(value)
        except ValidationError as error:
            log.warning("conversation ignored: it cannot be read", problems=error.error_count())
        else:
            if are_items(conversation.items):
                return conversation
            log.warning("conversation ignored: its items cannot be read")
    raise NotFound(f"Conversation with id {quoted(key)} not found.", "conversation")


def are_items(value: object) -> bool:
    """Return True for a list of items as they are stored: objects with an id and a type."""
    return isinstance(value, list) and all(
        isinstance(item, dict) and all(isinstance(item.get(name), str) for name in ("id", "type"))
        for item in value
    )


def _serialized(conversation: StoredConversation) -> bytes:
    """Raises `BadRequest` if the conversation is too large."""
    fields: dict[str, Any] = {**conversation.json(), "items": conversation.items}
    del fields["object"]
    value = json_codec.dumps(fields)
    if len(conversation.items) > MAX_ITEMS or len(value) > MAX_VALUE_BYTES:
        raise BadRequest("The conversation is too large: start another one.", "conversation")
    return value


def _key(client: str, conversation_id: str) -> str:
    return f"conversation:{client}:{conversation_id}"
