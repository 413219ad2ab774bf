"""Kernels started ahead of time, each handed out once. Knows nothing of programs.

Launches run on the pool's own threads, which live as long as the pool: a bubblewrap sandbox dies
with the thread that started it, so a request's thread must not. Another thread looks after what
waits: it replaces kernels that have died or grown old, and refills a moment after a hand-out, since
a start at that very moment would compete with the program for the processor.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from sandbox.errors import SandboxBusy, SandboxDied, SandboxUnavailable


class Poolable(Protocol):
    def alive(self) -> bool: ...
    def kill(self) -> None:
        """Stop it now, without waiting."""

    def dispose(self) -> None:
        """Stop it if it runs, wait for its end and give back all that it held."""


K = TypeVar("K", bound=Poolable)

AcquireSlot = Callable[[], Callable[[], None] | None]
"""Takes one of the places that several processes have together; what leaves it, or None if none is free."""

_LOOK = 0.25
"""Seconds between looks at the waiting kernels: a dead one is replaced within them."""
_QUIET = 0.05
"""Seconds from a hand-out to its refill."""


class WarmPool(Generic[K]):
    """At most `most` kernels handed out at once, and `size` more waiting."""

    def __init__(
        self,
        launch: Callable[[], K],
        *,
        size: int,
        most: int,
        max_age: float = 3600.0,
        launchers: int = 2,
        acquire_slot: AcquireSlot | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`acquire_slot` is asked for each hand-out, where `most` is a number of several processes."""
        self._launch = launch
        self._take_place: AcquireSlot = acquire_slot or (lambda: lambda: None)
        self._size = size
        self._most = most
        self._max_age = max_age
        self._now = now
        self._lock = threading.Lock()
        self._warm: deque[Future[K]] = deque()
        self._born: dict[K, float] = {}  # of those that wait
        self._out: dict[K, Callable[[], None]] = {}
        """Kernels that are handed out, and what leaves the place of each."""
        self._promised = 0  # hand-outs under way: counted, not yet in _out
        self._closed = False
        self._threads = ThreadPoolExecutor(launchers, thread_name_prefix="kernel-launcher")
        self._wanted = threading.Event()
        self._keeper: threading.Thread | None = None

    def fill(self) -> None:
        """Start the waiting kernels in the background, and keep them up."""
        with self._lock:
            self._check_open()
            self._fill()
            self._keep_up()

    def keep_up(self) -> None:
        """As `fill`, but a moment from now, as behind a hand-out; nothing if that has been done."""
        if self._keeper is None and self._size:
            with self._lock:
                if not self._closed:
                    self._keep_up()
                    self._wanted.set()

    def acquire(self, launch: Callable[[], K] | None = None) -> K:
        """Hand out a kernel: a waiting one, or one started now; with ``launch`` the one that it makes.

        Raises SandboxUnavailable, SandboxBusy.
        """
        with self._lock:
            self._check_open()
            full = len(self._out) + self._promised >= self._most
            leave = None if full else self._take_place()
            if leave is None:
                raise SandboxBusy(f"all {self._most} kernels are in use", "try again in a moment")
            self._promised += 1
        try:
            kernel = self._ready() if launch is None else launch()
        except BaseException:
            leave()
            raise
        finally:
            with self._lock:
                self._promised -= 1
        with self._lock:
            if not self._closed:
                self._out[kernel] = leave
                self._keep_up()
                self._wanted.set()
                return kernel
        leave()
        kernel.dispose()
        raise SandboxUnavailable("the kernel engine is closed", "create a new one")

    def release(self, kernel: K) -> None:
        """End a kernel that was handed out; what takes time happens in the background."""
        kernel.kill()
        with self._lock:
            if (leave := self._out.pop(kernel, None)) is not None:
                leave()
            if not self._closed:
                self._threads.submit(kernel.dispose)
                return
        kernel.dispose()

    def counts(self) -> dict[str, int]:
        """Kernels that wait, those that are handed out, and how many may be."""
        with self._lock:
            ready = sum(future.done() and future.exception() is None for future in self._warm)
            return {"waiting": ready, "in_use": len(self._out), "most": self._most}

    def close(self) -> None:
        """End every kernel. One in use is killed here and disposed of by whoever gives it back."""
        with self._lock:
            self._closed = True
            waiting, self._warm = list(self._warm), deque()
            self._wanted.set()
            for kernel in self._out:
                kernel.kill()
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled() and future.exception() is None:
                future.result().dispose()
        self._threads.shutdown(wait=True)
        if self._keeper is not None:
            self._keeper.join()

    def _keep_up(self) -> None:
        if self._keeper is None and self._size:
            self._keeper = threading.Thread(target=self._keep, name="kernel-keeper", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        while not self._closed:
            if self._wanted.wait(_LOOK):
                time.sleep(_QUIET)
                self._wanted.clear()
            with self._lock:
                # A launch that failed stays until someone asks for a kernel and is told of it.
                for future in [each for each in self._warm if self._is_spent(each)]:
                    self._warm.remove(future)
                    self._born.pop(future.result(), None)
                    with contextlib.suppress(RuntimeError):  # closed meanwhile
                        self._threads.submit(future.result().dispose)
                self._fill()

    def _is_spent(self, future: "Future[K]") -> bool:
        if not future.done() or future.exception() is not None:
            return False
        kernel = future.result()
        return not kernel.alive() or self._now() - self._born[kernel] > self._max_age

    def _started(self) -> K:
        kernel = self._launch()
        self._born[kernel] = self._now()
        return kernel

    def _ready(self) -> K:
        for _ in range(2):
            with self._lock:
                self._check_open()
                future = self._next()
            kernel = future.result()
            self._born.pop(kernel, None)
            if kernel.alive():
                return kernel
            kernel.dispose()
        raise SandboxDied("kernels end as soon as they have started")

    def _next(self) -> "Future[K]":
        """The first waiting kernel that is ready, else the one that will be soonest."""
        for future in self._warm:
            if future.done() and future.exception() is None:
                self._warm.remove(future)
                return future
        while self._warm:
            future = self._warm.popleft()
            if not future.done():
                return future
        return self._threads.submit(self._started)

    def _fill(self) -> None:
        while not self._closed and len(self._warm) < self._size:
            self._warm.append(self._threads.submit(self._started))

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxUnavailable("the kernel engine is closed", "create a new one")
