"""Tokens of clients, counted by the keeper for all workers: a storage of the ``limits`` library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from limits.storage import MemoryStorage, Storage

from emulator.shared.wire import Handler, Unreachable, Wire


class KeeperStorage(Storage):
    """The worker's side. What fails raises ``StorageError``."""

    STORAGE_SCHEME = None

    def __init__(self, wire: Wire) -> None:
        super().__init__(wrap_exceptions=True)
        self._wire = wire

    @property
    def base_exceptions(self) -> type[Exception]:
        return Unreachable

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return int(self._count("incr", key, expiry, amount))

    def get(self, key: str) -> int:
        return int(self._count("get", key))

    def get_expiry(self, key: str) -> float:
        return float(self._count("get_expiry", key))

    def clear(self, key: str) -> None:
        self._count("clear", key)

    def check(self) -> bool:
        return True

    def reset(self) -> int | None:
        forgotten = self._count("reset")
        return None if forgotten is None else int(forgotten)

    def _count(self, name: str, *arguments: Any) -> Any:
        return self._wire.ask_one("count", [name, *arguments])


_COUNTING = ("incr", "get", "get_expiry", "clear", "reset")


def handlers() -> dict[str, Handler]:
    """The keeper's side."""
    counted = MemoryStorage()
    methods = {name: getattr(counted, name) for name in _COUNTING}

    def count(asked: Any) -> Iterator[Any]:
        name, *arguments = asked
        yield methods[name](*arguments)

    return {"count": count}
