"""The protocol of a store of values under keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

MAX_VALUE_BYTES = 4 * 2**20


class StoreFailed(Exception):
    """The store is unavailable."""


Change = Callable[[bytes | None], bytes]


class KeyValueStore(Protocol):
    """Safe to share between threads."""

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        """Store values for ``seconds``, or for the store's default time. Raises `StoreFailed`."""

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, unless it has expired. Raises `StoreFailed`."""

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        """The values of those ``keys`` that have one. Raises `StoreFailed`."""

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        """Replace the value of ``key`` by ``change(value)`` in one step, for all processes.

        ``change`` gets None if there is no value, and may be called again. Raises what it raises, and
        `StoreFailed`.
        """

    def delete(self, keys: Collection[str]) -> None:
        """Remove the values of ``keys``, if there are any. Raises `StoreFailed`."""

    def close(self) -> None: ...
