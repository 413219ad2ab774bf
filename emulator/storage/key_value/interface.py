"""The protocol of a store of values under keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from emulator.errors import StoreUnavailable

MAX_VALUE_BYTES = 4 * 2**20


class StoreFailed(Exception):
    """The store is unavailable."""


@contextmanager
def store_failures(problem: str) -> Iterator[None]:
    """Raises `StoreUnavailable` with ``problem`` if the block cannot use the store."""
    try:
        yield
    except StoreFailed as error:
        raise StoreUnavailable(f"{problem} at the moment: {error}") from error


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
