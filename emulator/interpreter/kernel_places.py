"""How many kernels the containers of all replicas have: a place for each, counted in their shared store.

A container keeps its place while its kernel lives, at whichever replica, and at most as long as the container
can live when nobody uses it: what a dead replica has taken is free again then, or when another ends the
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
_KEPT_SECONDS = 31 * 86_400.0
"""Longer than any place is; each change begins it anew."""

_Places = dict[str, tuple[float, float]]
"""Container -> when its kernel was last used, and when its place is free again; Unix times."""
_PLACES: TypeAdapter[_Places] = TypeAdapter(_Places)


class _NoPlace(Exception):
    pass


class KernelPlaces:
    """``most`` of them. Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(
        self, store: KeyValueStore, most: int, now: Callable[[], float] = time.time
    ) -> None:
        self.most = most
        self._store = store
        self._now = now

    def take(self, container_id: str, seconds: float) -> bool:
        """Whether the container has a place, for ``seconds`` unless it is kept again."""

        def taken(places: _Places) -> None:
            if container_id not in places and len(places) >= self.most:
                raise _NoPlace
            self._use(places, container_id, seconds)

        try:
            self._change(taken)
        except _NoPlace:
            return False
        return True

    def keep(self, container_id: str, seconds: float) -> None:
        """The container has its kernel, used just now: it has a place, whatever others have taken."""
        self._change(lambda places: self._use(places, container_id, seconds))

    def leave(self, container_id: str) -> None:
        def left(places: _Places) -> None:
            places.pop(container_id, None)

        self._change(left)

    def idle(self, seconds: float) -> list[str]:
        """Containers whose kernels have not been used for so long, the longest first."""
        since = self._now() - seconds
        places = self._running(self._store.get(_KEY))
        found = sorted((used, container_id) for container_id, (used, _) in places.items())
        return [container_id for used, container_id in found if used <= since]

    def _use(self, places: _Places, container_id: str, seconds: float) -> None:
        places[container_id] = (self._now(), self._now() + seconds)

    def _change(self, change: Callable[[_Places], None]) -> None:
        def changed(value: bytes | None) -> bytes:
            places = self._running(value)
            change(places)
            return _PLACES.dump_json(places)

        self._store.change(_KEY, changed, _KEPT_SECONDS)

    def _running(self, value: bytes | None) -> _Places:
        if value is None:
            return {}
        try:
            places = _PLACES.validate_json(value)
        except ValidationError as error:
            log.warning("the kernels of all replicas cannot be read", problems=error.error_count())
            return {}
        return {each: times for each, times in places.items() if times[1] > self._now()}
