"""Run cells in Jupyter kernels, which are CPython.

Stops: what the kernel's place stops (`sandbox.kernel.provisioners`) and what a session stops
(`sandbox.kernel.session`); state of an earlier session (a kernel serves one); more
sessions than the limit.

Does not stop: what neither of these stops.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.fences import cgroups, leftovers
from sandbox.kernel.connection import KernelConnection, ParkedSession
from sandbox.kernel.notebook import Notebook
from sandbox.kernel.places import PLACES
from sandbox.kernel.stub import STUB
from sandbox.pool import WarmPool
from sandbox.report import first_problem


class KernelEngine:
    """Kernels in one place: a row of `PLACES`.

    `warm` is the number of kernels that are kept ready; `warm_up` or the first session starts them in the
    background. At most `most` sessions are open at the same time; one more raises SandboxBusy.
    `memory` in `limits` is the memory that each process of a kernel may map in addition to what a ready
    kernel has mapped.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        place: str = "bubblewrap",
        warm: int = 1,
        most: int = 16,
        preload: Sequence[str] = (),
        **config: int | str,
    ) -> None:
        """`preload` are modules that a waiting kernel imports, if they are installed. `config` has options of
        the place and traits of its provisioner."""
        self.limits = limits or Limits()
        self.place = place
        if place not in PLACES:
            raise ValueError(f"unknown place {place!r}; known: {', '.join(PLACES)}")
        row = PLACES[place]
        options = {name: value for name, value in config.items() if name in row.options}
        setup = f"{STUB}.prepare({self.limits.output}, {tuple(preload)!r}, shared={row.shared})"
        connect = row.connect({"memory": self.limits.memory, **config})
        self._connect = partial(connect, setup)
        self._outlives_process = row.shared
        self._used_elsewhere: list[KernelConnection] = []
        """Kernels of this process that others use. They keep their slots."""
        self._pool: WarmPool[KernelConnection] = WarmPool(self._connect, size=warm, most=most)
        self._checks = partial(row.checks, options)
        self._probe_lock = threading.Lock()
        self._problem: SandboxUnavailable | None = None
        self._probed = False

    def check(self) -> None:
        """Raises SandboxUnavailable if kernels cannot run in this place: that turns this engine off, and
        never leads to a weaker sandbox."""
        with self._probe_lock:
            if not self._probed:
                leftovers.sweep(cgroups.folders())
                self._problem = first_problem(self._checks())
                self._probed = True
            if self._problem is not None:
                raise SandboxUnavailable(self._problem.reason, self._problem.fix)

    def warm_up(self) -> None:
        """Start the waiting kernels in the background; they are replaced when used. Raises as `check`."""
        self.check()
        self._pool.keep_up()

    @contextmanager
    def notebook(
        self, parked: ParkedSession | None = None, *, busy: bool = False
    ) -> Iterator[Notebook]:
        """A session for people and models: rich outputs, files. Raises SandboxUnavailable, SandboxBusy.

        With `parked`, the session that another process has parked; its cell may still be running (`busy`).
        Raises SandboxDied if its kernel has ended.
        """
        with self._kernel(parked) as kernel:
            notebook = Notebook(kernel, self.limits)
            if parked is None:
                notebook.open()
            else:
                notebook.take_over(parked, busy=busy)
            yield notebook

    def end(self, parked: ParkedSession) -> None:
        """End a parked session's kernel. Raises SandboxUnavailable, SandboxDied if it has ended."""
        self._connect_to(parked).dispose()

    def _connect_to(self, parked: ParkedSession) -> KernelConnection:
        return self._connect(at=parked.address)

    @contextmanager
    def _kernel(self, parked: ParkedSession | None = None) -> Iterator[KernelConnection]:
        self.check()
        if parked is not None and not self._outlives_process:
            kernel = self._connect_to(parked)  # it counts where it was started
            try:
                yield kernel
            finally:
                kernel.dispose()
            return
        self.release_ended()
        kernel = self._pool.acquire(None if parked is None else partial(self._connect_to, parked))
        try:
            yield kernel
        finally:
            if kernel.is_used_elsewhere:
                self._used_elsewhere.append(kernel)
            else:
                self._pool.release(kernel)

    def release_ended(self) -> None:
        """Release the kernels that others used and that have ended."""
        for kernel in [each for each in self._used_elsewhere if not each.alive()]:
            self._used_elsewhere.remove(kernel)
            self._pool.release(kernel)

    def pool_counts(self) -> dict[str, int]:
        """As `WarmPool.counts`."""
        return self._pool.counts()

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
