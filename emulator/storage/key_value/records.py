"""Values of one type in a key-value store. What is read is validated as that type; anything else is no value.

So a store that another program can write to gives data, never code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import structlog
from pydantic import ConfigDict, TypeAdapter, ValidationError

from emulator.storage.key_value.interface import KeyValueStore

log = structlog.get_logger()

T = TypeVar("T")

_ONE: Any = tuple  # mypy wants the type of its items
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Records(Generic[T]):
    """Safe to share between threads. The methods that use the store raise `StoreFailed`."""

    def __init__(
        self, store: KeyValueStore, prefix: str, kind: Any, seconds: float | None = None
    ) -> None:
        """``kind`` is the type; a record expires after ``seconds``, or the store's default time."""
        self._store = store
        self._prefix = prefix
        # In a tuple, since only then can a dataclass be given a configuration.
        self._adapter: TypeAdapter[tuple[T]] = TypeAdapter(_ONE[kind], config=_BYTES)
        self._seconds = seconds

    def key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def get(self, name: str) -> T | None:
        return self._load(self._store.get(self.key(name)))

    def get_many(self, names: Collection[str]) -> dict[str, T]:
        """The records of those ``names`` that have one."""
        values = self._store.get_many([self.key(name) for name in names])
        records = {name: self._load(values.get(self.key(name))) for name in names}
        return {name: record for name, record in records.items() if record is not None}

    def change(self, name: str, change: Callable[[T | None], T]) -> None:
        """See `KeyValueStore.change`. Raises what ``change`` raises."""

        def changed(value: bytes | None) -> bytes:
            return self.dump(change(self._load(value)))

        self._store.change(self.key(name), changed, self._seconds)

    def delete(self, name: str) -> None:
        self._store.delete([self.key(name)])

    def dump(self, record: T) -> bytes:
        return self._adapter.dump_json((record,))

    def _load(self, value: bytes | None) -> T | None:
        if value is None:
            return None
        try:
            (record,) = self._adapter.validate_json(value)
        except ValidationError as error:
            log.warning("invalid record", kind=self._prefix, problems=error.error_count())
            return None
        return record
