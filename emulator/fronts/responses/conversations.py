"""Conversations: items stored under an id. Each response in a conversation adds its turn.

A conversation is one document, of bounded size. Changes are atomic, also across
processes and replicas. Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from emulator.core.errors import BadRequest, NotFound
from emulator.core.events import new_id
from emulator.database import (
    LEASE_SECONDS,
    MAX_VALUE_BYTES,
    Database,
    Documents,
    Leases,
    LeaseTaken,
    database_failures,
)
from emulator.fronts.responses.items import MAX_ITEMS, Json, quoted

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


@dataclass(frozen=True)
class Conversations:
    """Clients reach only their own conversations. If none is kept, none can be created."""

    stored: Documents[StoredConversation]
    leases: Leases

    def create(
        self, client: str, items: Sequence[Json], metadata: dict[str, str]
    ) -> StoredConversation:
        """Raises `BadRequest`, `StoreUnavailable`."""
        conversation = StoredConversation(new_id("conv_"), int(time.time()), metadata, [*items])
        if not self.stored.is_kept:
            raise BadRequest("Conversations need a database: set database (docs/settings.md).")
        self._check_size(conversation)
        with database_failures("The conversation cannot be stored"):
            self.stored.put({_key(client, conversation.id): conversation})
        return conversation

    def get(self, client: str, key: str) -> StoredConversation:
        """Raises `NotFound`, `StoreUnavailable`."""
        conversation = None
        if len(key) <= _MAX_ID:
            with database_failures("Conversations cannot be read"):
                conversation = self.stored.get(_key(client, key))
        return _checked(key, conversation)

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
        try:
            with (
                database_failures("The conversation cannot be used"),
                self.leases.holding(f"conversation {_key(client, key)}", LEASE_SECONDS + 1),
            ):
                now = self.get(client, key).items
                if [item["id"] for item in now] != [item["id"] for item in items]:
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
        with database_failures("The conversation cannot be deleted"):
            self.stored.delete([_key(client, key)])

    def _changed(
        self, client: str, key: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation:
        changed = self.get(client, key)

        def write(old: StoredConversation | None) -> StoredConversation:
            nonlocal changed
            changed = change(_checked(key, old))
            self._check_size(changed)
            return changed

        with database_failures("The conversation cannot be stored"):
            self.stored.change(_key(client, key), write)
        return changed

    def _check_size(self, conversation: StoredConversation) -> None:
        """Raises `BadRequest` if the conversation is too large."""
        size = len(self.stored.dump(conversation))
        if len(conversation.items) > MAX_ITEMS or size > MAX_VALUE_BYTES:
            raise BadRequest("The conversation is too large: start another one.", "conversation")


def open_conversations(database: Database, leases: Leases, seconds: float) -> Conversations:
    stored: Documents[StoredConversation] = Documents(
        database, "conversation", StoredConversation, seconds=seconds
    )
    return Conversations(stored, leases)


def _checked(key: str, conversation: StoredConversation | None) -> StoredConversation:
    """Raises `NotFound`, also for a document whose items are damaged."""
    if conversation is not None:
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


def _key(client: str, conversation_id: str) -> str:
    return f"{client}:{conversation_id}"
