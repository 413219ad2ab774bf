"""Start kernels ahead of time, and hand each out once. Knows nothing of programs.

States of a kernel: *starting* or *waiting* (a future in `_warm`), *in use* (in `_in_use`), *disposed*. A
waiting kernel that has died is disposed and replaced. At most `most` kernels are in use, and `size` are
waiting.

What may never happen: a kernel is handed out twice; a kernel is in use without a slot, or keeps its slot
after its end; a kernel outlives `close`.

Kernels start on threads of the pool, which live as long as the pool: a bubblewrap sandbox ends with the
thread that started it, so the thread of a request must not start it. Another thread maintains the waiting
kernels. It starts new ones a moment after a kernel was handed out, because at that time a start would
compete with the program for the CPU.
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
        """Stop it, without waiting for its end."""

    def dispose(self) -> None:
        """Stop it if it runs, wait for its end, and release its resources."""


K = TypeVar("K", bound=Poolable)

_CHECK_SECONDS = 0.25
"""Interval of the checks for dead kernels."""
_REFILL_DELAY = 0.05
"""Seconds between handing out a kernel and starting the next one."""


class WarmPool(Generic[K]):
    """At most `most` kernels in use at the same time, and `size` more waiting."""

    def __init__(
        self,
        launch: Callable[[], K],
        *,
        size: int,
        most: int,
        launchers: int = 2,
    ) -> None:
        self._launch = launch
        self._size = size
        self._most = most
        self._lock = threading.Lock()
        self._warm: deque[Future[K]] = deque()
        self._in_use: set[K] = set()
        self._reserved = 0  # kernels that are about to be handed out, not yet in _in_use
        self._closed = False
        self._threads = ThreadPoolExecutor(launchers, thread_name_prefix="kernel-launcher")
        self._refill = threading.Event()
        self._maintainer: threading.Thread | None = None

    def keep_up(self) -> None:
        """Start the waiting kernels in a moment, and maintain their number. Does nothing if maintenance has
        started."""
        if self._maintainer is None and self._size:
            with self._lock:
                if not self._closed:
                    self._start_maintenance()
                    self._refill.set()

    def acquire(self, launch: Callable[[], K] | None = None) -> K:
        """Hand out a waiting kernel, or start one; with ``launch``, hand out the kernel that it returns.

        Raises SandboxUnavailable, SandboxBusy.
        """
        with self._lock:
            self._check_open()
            if len(self._in_use) + self._reserved >= self._most:
                raise SandboxBusy(f"all {self._most} kernels are in use", "try again in a moment")
            self._reserved += 1
        try:
            kernel = self._waiting_kernel() if launch is None else launch()
        finally:
            with self._lock:
                self._reserved -= 1
        with self._lock:
            if not self._closed:
                self._in_use.add(kernel)
                self._start_maintenance()
                self._refill.set()
                return kernel
        kernel.dispose()
        raise SandboxUnavailable("the kernel engine is closed", "create a new one")

    def release(self, kernel: K) -> None:
        """End a kernel that was handed out. Slow parts run in the background."""
        kernel.kill()
        with self._lock:
            self._in_use.discard(kernel)
            if not self._closed:
                self._threads.submit(kernel.dispose)
                return
        kernel.dispose()

    def counts(self) -> dict[str, int]:
        """The number of waiting kernels, of kernels in use, and the limit of the latter."""
        with self._lock:
            ready = sum(future.done() and future.exception() is None for future in self._warm)
            return {"waiting": ready, "in_use": len(self._in_use), "most": self._most}

    def close(self) -> None:
        """End all kernels. A kernel in use is killed here, and disposed when its user releases it."""
        with self._lock:
            self._closed = True
            waiting, self._warm = list(self._warm), deque()
            self._refill.set()
            for kernel in self._in_use:
                kernel.kill()
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled() and future.exception() is None:
                future.result().dispose()
        self._threads.shutdown(wait=True)
        if self._maintainer is not None:
            self._maintainer.join()

    def _start_maintenance(self) -> None:
        if self._maintainer is None and self._size:
            self._maintainer = threading.Thread(
                target=self._maintain, name="kernel-keeper", daemon=True
            )
            self._maintainer.start()

    def _maintain(self) -> None:
        while not self._closed:
            if self._refill.wait(_CHECK_SECONDS):
                time.sleep(_REFILL_DELAY)
                self._refill.clear()
            with self._lock:
                # A failed launch stays, so that the next `acquire` raises its error.
                for future in [each for each in self._warm if _is_dead(each)]:
                    self._warm.remove(future)
                    with contextlib.suppress(RuntimeError):  # the pool was closed meanwhile
                        self._threads.submit(future.result().dispose)
                self._fill()

    def _waiting_kernel(self) -> K:
        for is_last in (False, True):
            with self._lock:
                self._check_open()
                future = self._next()
            try:
                kernel = future.result()
            except SandboxUnavailable:
                if is_last:
                    raise
                continue
            if kernel.alive():
                return kernel
            kernel.dispose()
        raise SandboxDied("kernels end immediately after their start")

    def _next(self) -> "Future[K]":
        """The first waiting kernel that is ready, else the one that started first."""
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


def _is_dead(future: "Future[K]") -> bool:
    return future.done() and future.exception() is None and not future.result().alive()
