"""Which of several workers accepts the next connection: a busier one leaves it to the others for a moment.

Clients keep their connections open, so without this the worker that had most of them would stay ahead. The
same idea as Puma's wait_for_less_busy_worker. Knows nothing of sockets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the master does without the modules that it imports
    from emulator.shared.counts import WorkerLoad

CONNECTIONS = "connections"
"""The count of which each worker reports its part."""
_SECONDS_PER_CONNECTION = 0.005
_MAX_SECONDS = 0.05
"""The least busy worker may be unable to accept anything."""


class Balance:
    """For one thread. Without ``load``, in the only worker, it never yields."""

    def __init__(self, load: WorkerLoad | None = None) -> None:
        self._load = load
        self._until = 0.0
        self._yielded = False
        """Has already yielded the connection that is waiting now."""

    def report(self, connections: int) -> None:
        """The number of connections that this worker has."""
        if self._load is not None:
            self._load.report(connections)

    def should_yield(self) -> bool:
        """Return True if the waiting connection is left to other workers, once, for the next `seconds`."""
        excess = 0 if self._yielded or self._load is None else self._load.excess()
        self._yielded = excess > 0
        if self._yielded:
            self._until = time.monotonic() + min(excess * _SECONDS_PER_CONNECTION, _MAX_SECONDS)
        return self._yielded

    @property
    def seconds(self) -> float:
        """How long this worker still yields; 0 or less when it accepts again."""
        return self._until - time.monotonic()
