"""Run programs in a Jupyter kernel: all of CPython, spoken to through jupyter_client.

Stops: what the kernel's place stops (`sandbox.kernel.provisioners`) and what a session stops
(`sandbox.kernel.session`); state left by an earlier program (a kernel serves one session); more
sessions than there may be.

Does not stop: what neither of these stops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Self

from sandbox.engine import Limits, Session
from sandbox.errors import SandboxDied, SandboxUnavailable
from sandbox.fences import cgroups, leftovers
from sandbox.kernel.connection import Connected
from sandbox.kernel.notebook import Notebook
from sandbox.kernel.parked import Parked
from sandbox.kernel.places import PLACES
from sandbox.kernel.session import KernelSession
from sandbox.kernel.stub import STUB
from sandbox.pool import AcquireSlot, WarmPool


class KernelEngine:
    """Kernels in one place: `bubblewrap`, `docker`, or `none` where the operator said so by name.

    `warm` kernels wait ready, started in the background by `warm_up`, `get_ready` or the first session;
    at most `most` sessions are open at once, one more raises SandboxBusy. A kernel that has waited
    `max_age` seconds, or has died, is replaced. `memory` in `limits` counts what
    a kernel maps beyond its own start, in each of its processes.
    """

    name = "kernel"

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        place: str = "bubblewrap",
        warm: int = 1,
        most: int = 16,
        max_age: float = 3600.0,
        preload: Sequence[str] = (),
        connect: Callable[..., Connected] | None = None,
        acquire_slot: AcquireSlot | None = None,
        **config: int | str,
    ) -> None:
        """`preload` are modules that a waiting kernel imports, where it has them. `connect` makes
        kernels somewhere else than in `place`, each given the source of its setup; what confines
        them there is not for this engine to check. `acquire_slot` is the pool's: see `WarmPool`. `config`
        sets traits of the place."""
        self.limits = limits or Limits()
        self.place = place
        elsewhere = connect is not None
        if place not in PLACES:
            raise ValueError(f"unknown place {place!r}; known: {', '.join(PLACES)}")
        row = PLACES[place]
        options = {name: value for name, value in config.items() if name in row.options}
        if connect is None and row.connect is not None:
            connect = row.connect(options)
        shared = connect is not None
        setup = f"{STUB}.prepare({self.limits.output}, {tuple(preload)!r}, shared={shared})"
        if connect is None:
            assert row.provisioner is not None
            connect = _here(row.provisioner, {"memory": self.limits.memory, **config})
        self._connect = partial(connect, setup)
        self._lives_on = shared
        self._pool: WarmPool[Connected] = WarmPool(
            self._connect, size=warm, most=most, max_age=max_age, acquire_slot=acquire_slot
        )
        self._probe = partial(row.problem, options)
        self._probe_lock = threading.Lock()
        self._problem: SandboxUnavailable | None = None
        self._probed = elsewhere

    def check(self) -> None:
        """Raises SandboxUnavailable if this place cannot be had: a sandbox that cannot be had turns this
        engine off; it never becomes a weaker one."""
        with self._probe_lock:
            if not self._probed:
                leftovers.sweep(cgroups.folders())
                self._problem = self._probe()
                self._probed = True
            if self._problem is not None:
                raise SandboxUnavailable(self._problem.reason, self._problem.fix)

    def warm_up(self) -> None:
        """Start the waiting kernels now. Raises as `check`."""
        self.check()
        self._pool.fill()

    def get_ready(self) -> None:
        """As `Engine.get_ready`: the waiting kernels start a moment from now, and are kept up."""
        self._pool.keep_up()

    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> AbstractContextManager[Session]:
        return self._session(names, preamble, seed)

    @contextmanager
    def _session(self, names: frozenset[str], preamble: str, seed: int) -> Iterator[Session]:
        with self._kernel() as kernel:
            session = KernelSession(kernel, names, self.limits)
            session.open(preamble, seed)
            yield session

    @contextmanager
    def notebook(self, parked: Parked | None = None, *, busy: bool = False) -> Iterator[Notebook]:
        """A session for people and models: rich outputs, files. Raises SandboxUnavailable, SandboxBusy.

        Or one that another process has begun, whose cell may still be running (`busy`); SandboxDied if
        there is no such kernel any more.
        """
        with self._kernel(parked) as kernel:
            session = KernelSession(kernel, frozenset(), self.limits, lenient=True)
            if parked is None:
                session.open("", 0)
            else:
                session.take_over(parked, busy=busy)
            yield Notebook(session)

    def end(self, parked: Parked) -> None:
        """End a kernel wherever it was used last. Raises SandboxUnavailable, SandboxDied if it has ended."""
        self._at(parked).dispose()

    def _at(self, parked: Parked) -> Connected:
        if not self._lives_on:
            raise SandboxDied(f"no kernel in {self.place} outlives its process")
        return self._connect(at=parked.address)

    @contextmanager
    def _kernel(self, parked: Parked | None = None) -> Iterator[Connected]:
        self.check()
        kernel = self._pool.acquire(None if parked is None else partial(self._at, parked))
        try:
            yield kernel
        finally:
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


def _here(provisioner: str, config: Mapping[str, int | str]) -> Callable[..., Connected]:
    """What starts a kernel on this machine, from the source of its setup.

    jupyter_client comes with the first one: 17 MiB, of which a server that needs no kernel has no use.
    """

    def start(setup: str) -> Connected:
        from sandbox.kernel.jupyter import Kernel
        from sandbox.kernel.provisioners import kernel_spec

        return Kernel(kernel_spec(provisioner, config), setup)

    return start
