"""What a store of values under keys can do, whatever keeps them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

MAX_VALUE_BYTES = 4 * 2**20
_KEYS_AT_ONCE = 500


class StoreFailed(Exception):
    """The store cannot be reached or used just now."""


Change = Callable[[bytes | None], bytes]


class KeyValueStore(Protocol):
    """Safe to share between threads."""

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        """Keep values, for ``seconds`` or as long as the store keeps what says nothing.

        Raises `StoreFailed`.
        """

    def get(self, key: str) -> bytes | None:
        """What was put under ``key``, unless it has expired. Raises `StoreFailed`."""

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        """What was put under those of ``keys`` that hold something. Raises `StoreFailed`."""

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        """Put what ``change`` makes of the value under ``key``; nobody else changes it meanwhile.

        ``change`` gets None for no value, and may be called again. Raises what it raises, and `StoreFailed`.
        """

    def delete(self, keys: Collection[str]) -> None:
        """Forget what was put under ``keys``, if anything was. Raises `StoreFailed`."""

    def close(self) -> None: ...


def portions(keys: Collection[str]) -> Iterator[list[str]]:
    """As many keys at a time as one question may have."""
    listed = list(keys)
    for start in range(0, len(listed), _KEYS_AT_ONCE):
        yield listed[start : start + _KEYS_AT_ONCE]
