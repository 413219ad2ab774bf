"""Places that all workers together have so many of: most open requests of a client, say.

A place is held by a connection to the keeper, so it is free again when its holder leaves it, or dies. Where
the keeper cannot be reached the limit is not kept: it guards against too much, and is no lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from emulator import departure
from emulator.shared.wire import Handler, Unreachable, Wire

log = structlog.get_logger()


def take(wire: Wire, name: str, most: int, seconds: float) -> Callable[[], None] | None:
    """What leaves the place again; None if there was none within ``seconds``."""
    answer = wire.ask("lease", [name, most, seconds])
    try:
        has_place = next(answer)
    except Unreachable as error:
        log.warning("a limit is not kept", reason=str(error))
        return lambda: None
    leave: Callable[[], None] = answer.close  # type: ignore[attr-defined]  # it is a generator
    if not has_place:
        leave()
        return None
    return leave


class Leases:
    """The keeper's side."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: Counter[str] = Counter()

    def handlers(self) -> dict[str, Handler]:
        return {"lease": self._lease}

    def _lease(self, asked: Any) -> Iterator[Any]:
        name, most, seconds = asked
        gone = threading.Event()
        with departure.stopping(gone.set):
            if not self._enter(name, most, seconds):
                yield False
                return
            try:
                yield True
                gone.wait()
            finally:
                self._leave(name)

    def _enter(self, name: str, most: int, seconds: float) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._held[name] < most, seconds):
                return False
            self._held[name] += 1
            return True

    def _leave(self, name: str) -> None:
        with self._changed:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
            self._changed.notify_all()
