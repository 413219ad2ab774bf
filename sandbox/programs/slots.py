"""Share the slots of running programs fairly among clients. Knows no process.

States of a slot: *free* -> *taken* (`acquire`) -> *free* or handed to a queued client (`release`). A client
that finds none free queues. Clients take turns: a client with many queued programs gets every second slot
next to a client with one.

What may never happen: a slot is free while a program is queued; a slot is lost when a queued program gives
up.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from sandbox.errors import SandboxBusy

QUEUE_SECONDS = 5.0
"""How long a program waits for a slot."""
_LOOK_SECONDS = 0.1
"""How often a program that waits looks whether it was ended."""


class RunningSlots:
    """At most `most` at the same time, in all threads."""

    def __init__(self, most: int, seconds: float = QUEUE_SECONDS) -> None:
        self._most = most
        self._free = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, deque[threading.Event]] = OrderedDict()

    def acquire(self, client: str, has_ended: Callable[[], bool] = lambda: False) -> None:
        """Take a slot, after the programs of others whose turn it is. Raises SandboxBusy, also soon after
        `has_ended` returns True."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Event()
            self._queues.setdefault(client, deque()).append(turn)
        until = time.monotonic() + self._seconds
        while not turn.wait(min(_LOOK_SECONDS, max(0.0, until - time.monotonic()))):
            if has_ended() or time.monotonic() >= until:
                self._give_up(client, turn)
                return

    def release(self) -> None:
        """Hand the slot to the client whose turn it is."""
        with self._lock:
            if not self._queues:
                self._free += 1
                return
            client, queue = self._queues.popitem(last=False)
            queue.popleft().set()
            if queue:
                self._queues[client] = queue

    @property
    def queued(self) -> int:
        """The number of queued programs."""
        with self._lock:
            return sum(map(len, self._queues.values()))

    def _give_up(self, client: str, turn: threading.Event) -> None:
        with self._lock:
            if turn.is_set():  # in the last moment
                return
            queue = self._queues[client]
            queue.remove(turn)
            if not queue:
                del self._queues[client]
        raise SandboxBusy(f"all {self._most} programs are running", "try again in a moment")


class WaitingSlots:
    """At most `most` at the same time; a program that finds none free does not wait."""

    def __init__(self, most: int) -> None:
        self._slots = threading.BoundedSemaphore(most) if most else None

    def acquire(self) -> bool:
        """Take a slot if one is free."""
        return self._slots is not None and self._slots.acquire(blocking=False)

    def release(self) -> None:
        assert self._slots is not None
        self._slots.release()
