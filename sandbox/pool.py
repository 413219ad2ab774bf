"""Kernels started ahead of time, each handed out once. Knows nothing of programs.

Launches run on the pool's own threads, which live as long as the pool: a bubblewrap sandbox dies
with the thread that started it, so a request's thread must not.
"""

import threading
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


class WarmPool(Generic[K]):
    """At most `most` kernels handed out at once, and `size` more waiting."""

    def __init__(
        self, launch: Callable[[], K], *, size: int, most: int, launchers: int = 2
    ) -> None:
        self._launch = launch
        self._size = size
        self._most = most
        self._lock = threading.Lock()
        self._warm: deque[Future[K]] = deque()
        self._out: set[K] = set()
        self._promised = 0  # hand-outs under way: counted, not yet in _out
        self._closed = False
        self._threads = ThreadPoolExecutor(launchers, thread_name_prefix="kernel-launcher")

    def fill(self) -> None:
        """Start the waiting kernels in the background."""
        with self._lock:
            self._fill()

    def take(self) -> K:
        """Hand out a kernel: a waiting one, or one started now. Raises SandboxUnavailable."""
        with self._lock:
            self._check_open()
            if len(self._out) + self._promised >= self._most:
                raise SandboxBusy(f"all {self._most} kernels are in use", "try again in a moment")
            self._promised += 1
        try:
            kernel = self._ready()
        finally:
            with self._lock:
                self._promised -= 1
        with self._lock:
            if not self._closed:
                self._out.add(kernel)
                self._fill()
                return kernel
        kernel.dispose()
        raise SandboxUnavailable("the kernel engine is closed", "create a new one")

    def give_back(self, kernel: K) -> None:
        """End a kernel that was handed out; what takes time happens in the background."""
        kernel.kill()
        with self._lock:
            self._out.discard(kernel)
            if not self._closed:
                self._threads.submit(kernel.dispose)
                return
        kernel.dispose()

    def close(self) -> None:
        """End every kernel. One in use is killed here and disposed of by whoever gives it back."""
        with self._lock:
            self._closed = True
            waiting, self._warm = list(self._warm), deque()
            for kernel in self._out:
                kernel.kill()
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled() and future.exception() is None:
                future.result().dispose()
        self._threads.shutdown(wait=True)

    def _ready(self) -> K:
        for _ in range(2):
            with self._lock:
                self._check_open()
                future = self._next()
            kernel = future.result()
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
        return self._threads.submit(self._launch)

    def _fill(self) -> None:
        while not self._closed and len(self._warm) < self._size:
            self._warm.append(self._threads.submit(self._launch))

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxUnavailable("the kernel engine is closed", "create a new one")
