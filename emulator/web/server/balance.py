"""Which of several workers takes the next connection: one that has more leaves it to others for a moment.

Clients keep their connections, and whoever had most of them would keep its lead. As Puma's
wait_for_less_busy_worker. Knows no sockets.
"""

from __future__ import annotations

import time

from emulator.shared.counts import Burden

CONNECTIONS = "connections"
"""Of which the `Burden` is."""
_SECONDS = 0.005
"""For each connection that another worker has less."""
_MOST_SECONDS = 0.05
"""However many less it has: it may be unable to take any."""


class Balance:
    """For one thread. Without a burden, where there is one worker, it never gives way."""

    def __init__(self, burden: Burden | None = None) -> None:
        self._burden = burden
        self._until = 0.0
        self._gave_way = False
        """Before the connection that is there now."""

    def tell(self, connections: int) -> None:
        """How many this worker has."""
        if self._burden is not None:
            self._burden.tell(connections)

    def gives_way(self) -> bool:
        """Whether a connection that is there is left to others, once, for `seconds` from now."""
        lead = 0 if self._gave_way or self._burden is None else self._burden.lead()
        self._gave_way = lead > 0
        if self._gave_way:
            self._until = time.monotonic() + min(lead * _SECONDS, _MOST_SECONDS)
        return self._gave_way

    @property
    def seconds(self) -> float:
        """How long others are given way to yet; 0 or less: not any more."""
        return self._until - time.monotonic()
