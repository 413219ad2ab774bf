"""The limit `max_kernels` where replicas share a gateway: a table of slots in the shared store.

A container has a slot while its kernel lives, at whichever replica, and at most as long as the container
can live unused. So a slot that a dead replica took is free at that time, or when any replica ends the
container. Knows nothing of what kernels are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from pydantic import TypeAdapter, ValidationError

from emulator.storage.key_value import KeyValueStore

log = structlog.get_logger()

_KEY = "kernel-places"
_TABLE_SECONDS = 31 * 86_400.0
"""Longer than any slot. Each change extends it."""

_Table = dict[str, tuple[float, float]]
"""Container -> when its kernel was last used, and when its slot expires, in Unix time."""
_TABLE: TypeAdapter[_Table] = TypeAdapter(_Table)


class _NoSlot(Exception):
    pass


class KernelSlots:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(
        self, store: KeyValueStore, limit: int, now: Callable[[], float] = time.time
    ) -> None:
        self.limit = limit
        self._store = store
        self._now = now

    def acquire(self, container_id: str, seconds: float) -> bool:
        """Return True if the container now has a slot, which expires after ``seconds`` unless renewed."""

        def take(table: _Table) -> None:
            if container_id not in table and len(table) >= self.limit:
                raise _NoSlot
            self._use(table, container_id, seconds)

        try:
            self._change(take)
        except _NoSlot:
            return False
        return True

    def renew(self, container_id: str, seconds: float) -> None:
        """The container's kernel was used now. It has a slot even if others have taken all of them."""
        self._change(lambda table: self._use(table, container_id, seconds))

    def release(self, container_id: str) -> None:
        def remove(table: _Table) -> None:
            table.pop(container_id, None)

        self._change(remove)

    def idle(self, seconds: float) -> list[str]:
        """Containers whose kernels have not been used for ``seconds``, the longest idle first."""
        since = self._now() - seconds
        table = self._parse(self._store.get(_KEY))
        by_use = sorted((used, container_id) for container_id, (used, _) in table.items())
        return [container_id for used, container_id in by_use if used <= since]

    def _use(self, table: _Table, container_id: str, seconds: float) -> None:
        table[container_id] = (self._now(), self._now() + seconds)

    def _change(self, change: Callable[[_Table], None]) -> None:
        def changed(value: bytes | None) -> bytes:
            table = self._parse(value)
            change(table)
            return _TABLE.dump_json(table)

        self._store.change(_KEY, changed, _TABLE_SECONDS)

    def _parse(self, value: bytes | None) -> _Table:
        if value is None:
            return {}
        try:
            table = _TABLE.validate_json(value)
        except ValidationError as error:
            log.warning("the table of kernel slots is invalid", problems=error.error_count())
            return {}
        return {each: times for each, times in table.items() if times[1] > self._now()}
