"""The limit `max_kernels` where replicas share a gateway: a table of slots in the shared store.

A container has a slot while its kernel runs on any replica, but no longer than an unused container lives. So
the slot of a replica that died becomes free after that time, or when any replica ends the container. Knows
nothing of kernels themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from emulator.storage.key_value import KeyValueStore
from emulator.storage.key_value.records import Records

_KEY = "all"
_TABLE_SECONDS = 31 * 86_400.0
"""Longer than any slot. Each change extends it."""

_Table = dict[str, tuple[float, float]]
"""Container -> when its kernel was last used, and when its slot expires, in Unix time."""


class _NoSlot(Exception):
    pass


class KernelSlots:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(
        self, store: KeyValueStore, limit: int, now: Callable[[], float] = time.time
    ) -> None:
        self.limit = limit
        self._tables: Records[_Table] = Records(store, "kernel-slots", _Table, _TABLE_SECONDS)
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
        table = self._current(self._tables.get(_KEY))
        by_use = sorted((used, container_id) for container_id, (used, _) in table.items())
        return [container_id for used, container_id in by_use if used <= since]

    def _use(self, table: _Table, container_id: str, seconds: float) -> None:
        table[container_id] = (self._now(), self._now() + seconds)

    def _change(self, change: Callable[[_Table], None]) -> None:
        def changed(stored: _Table | None) -> _Table:
            table = self._current(stored)
            change(table)
            return table

        self._tables.change(_KEY, changed)

    def _current(self, table: _Table | None) -> _Table:
        """The slots that have not expired."""
        return {each: times for each, times in (table or {}).items() if times[1] > self._now()}
