"""Share the slots of running programs fairly among clients. Knows no process.

States of a slot: *free* -> *taken* (`acquire`) -> *free* or handed to a queued client (`release`). A client
that finds none free, or that has as many as one client may have, queues. Clients take turns: a client with
many queued programs gets every second slot next to a client with one.

What may never happen: a slot is free while a program is queued whose client may have it; a slot is lost when
a queued program gives up.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from sandbox.errors import SandboxBusy

QUEUE_SECONDS = 5.0
"""How long a program waits for a slot."""
_LOOK_SECONDS = 0.1
"""How often a program that waits looks whether it was ended."""


class RunningSlots:
    """At most `most` at the same time, in all threads."""

    def __init__(
        self, most: int, seconds: float = QUEUE_SECONDS, *, most_of_one: int | None = None
    ) -> None:
        """One client has at most `most_of_one` of them."""
        self._most = most
        self._most_of_one = most_of_one or most
        self._taken: Counter[str] = Counter()
        """By client."""
        self._free = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, deque[threading.Event]] = OrderedDict()

    def acquire(self, client: str, has_ended: Callable[[], bool] = lambda: False) -> None:
        """Take a slot, after the programs of others whose turn it is. Raises SandboxBusy, also soon after
        `has_ended` returns True."""
        with self._lock:
            if self._free and self._may_take(client):
                self._free -= 1
                self._taken[client] += 1
                return
            turn = threading.Event()
            self._queues.setdefault(client, deque()).append(turn)
        until = time.monotonic() + self._seconds
        while not turn.wait(min(_LOOK_SECONDS, max(0.0, until - time.monotonic()))):
            if has_ended() or time.monotonic() >= until:
                self._give_up(client, turn)
                return

    def release(self, client: str) -> None:
        """Hand a slot of `client` to the client whose turn it is."""
        with self._lock:
            self._taken -= Counter({client: 1})
            following = next(filter(self._may_take, self._queues), None)
            if following is None:
                self._free += 1
                return
            queue = self._queues.pop(following)
            queue.popleft().set()
            self._taken[following] += 1
            if queue:
                self._queues[following] = queue

    @property
    def queued(self) -> int:
        """The number of queued programs."""
        with self._lock:
            return sum(map(len, self._queues.values()))

    def _may_take(self, client: str) -> bool:
        return self._taken[client] < self._most_of_one

    def _give_up(self, client: str, turn: threading.Event) -> None:
        with self._lock:
            if turn.is_set():  # in the last moment
                return
            queue = self._queues[client]
            queue.remove(turn)
            if not queue:
                del self._queues[client]
        what = f"all {self._most} programs, or {self._most_of_one} of this client, are running"
        raise SandboxBusy(what, "try again in a moment")


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
