"""Conversations: items under an id, to which each response made in one adds its turn.

One value in the store each, bounded like all of them. Changes follow one another, in whichever process or
replica they are made. Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from emulator import json_codec
from emulator.errors import BadRequest, NotFound, StoreUnavailable
from emulator.events import new_id
from emulator.responses.items import MAX_ITEMS, Json, quoted
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed

_MAX_ID = 128


@dataclass(frozen=True)
class Conversation:
    id: str
    created_at: int
    metadata: dict[str, str]
    items: list[Json]

    def json(self) -> Json:
        told = {"id": self.id, "created_at": self.created_at, "metadata": self.metadata}
        return {**told, "object": "conversation"}

    def item(self, key: str) -> Json:
        """Raises `NotFound`."""
        for item in self.items:
            if item["id"] == key:
                return item
        raise NotFound(f"Item with id {quoted(key)} not found.", "item_id")


@dataclass(frozen=True)
class Conversations:
    """Whoever asks gets only those of the same client. Without a store there are none."""

    store: KeyValueStore | None
    seconds: float

    def create(self, client: str, items: Sequence[Json], metadata: dict[str, str]) -> Conversation:
        """Raises `BadRequest`, `StoreUnavailable`."""
        made = Conversation(new_id("conv_"), int(time.time()), metadata, [*items])
        self._put(client, made)
        return made

    def get(self, client: str, key: str) -> Conversation:
        """Raises `NotFound`, `StoreUnavailable`."""
        value = None
        if self.store is not None and len(key) <= _MAX_ID:
            try:
                value = self.store.get(_key(client, key))
            except StoreFailed as error:
                message = f"Conversations cannot be read now: {error}"
                raise StoreUnavailable(message) from error
        return _read(key, value)

    def update(self, client: str, key: str, metadata: dict[str, str]) -> Conversation:
        """Raises as `add`."""
        return self._changed(client, key, lambda old: replace(old, metadata=metadata))

    def add(self, client: str, key: str, items: Sequence[Json]) -> Conversation:
        """Raises `NotFound`, `StoreUnavailable`, `BadRequest` when it would be too large."""
        return self._changed(client, key, lambda old: replace(old, items=[*old.items, *items]))

    def remove(self, client: str, key: str, item_id: str) -> Conversation:
        """Raises as `add`."""

        def without(old: Conversation) -> Conversation:
            old.item(item_id)
            return replace(old, items=[item for item in old.items if item["id"] != item_id])

        return self._changed(client, key, without)

    def delete(self, client: str, key: str) -> None:
        """Raises `NotFound`, `StoreUnavailable`."""
        self.get(client, key)
        assert self.store is not None
        try:
            self.store.delete([_key(client, key)])
        except StoreFailed as error:
            message = f"The conversation cannot be deleted now: {error}"
            raise StoreUnavailable(message) from error

    def _changed(
        self, client: str, key: str, change: Callable[[Conversation], Conversation]
    ) -> Conversation:
        changed = self.get(client, key)
        assert self.store is not None

        def write(value: bytes | None) -> bytes:
            nonlocal changed
            changed = change(_read(key, value))
            return _written(changed)

        try:
            self.store.change(_key(client, key), write, self.seconds)
        except StoreFailed as error:
            message = f"The conversation cannot be kept now: {error}"
            raise StoreUnavailable(message) from error
        return changed

    def _put(self, client: str, conversation: Conversation) -> None:
        if self.store is None:
            raise BadRequest("Nothing is kept here, so there are no conversations.")
        value = _written(conversation)
        try:
            self.store.put({_key(client, conversation.id): value}, self.seconds)
        except StoreFailed as error:
            message = f"The conversation cannot be kept now: {error}"
            raise StoreUnavailable(message) from error


def _read(key: str, value: bytes | None) -> Conversation:
    """Raises `NotFound`."""
    if value is None:
        raise NotFound(f"Conversation with id {quoted(key)} not found.", "conversation")
    return Conversation(**orjson.loads(value))


def _written(conversation: Conversation) -> bytes:
    """Raises `BadRequest` when it has become too large."""
    kept: dict[str, Any] = {**conversation.json(), "items": conversation.items}
    del kept["object"]
    value = json_codec.dumps(kept)
    if len(conversation.items) > MAX_ITEMS or len(value) > MAX_VALUE_BYTES:
        raise BadRequest("The conversation has become too large: begin another.", "conversation")
    return value


def _key(client: str, conversation_id: str) -> str:
    return f"conversation:{client}:{conversation_id}"
