"""Pin a process to one CPU core, but not the processes that it starts. Linux only; elsewhere nothing happens.

Only one thread of a Python process runs at a time. If the threads may run on several cores, each switch
wakes a thread on another core: with 16 concurrent requests that took 15 to 20 % of a worker's CPU.
Pinning is useful if each core has such a process; if a core is free, code that needs no interpreter may
run there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_allowed: set[int] = set()
"""The cores of this process before it was pinned; empty if it is not pinned."""


def pin_to_core(index: int, count: int) -> None:
    """Pin process ``index`` of ``count`` to a core of its own, if there are as many cores as processes.

    Call it before the process starts threads. Child processes are pinned too, unless they start inside
    `unpinned`.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = os.sched_getaffinity(0)
    if len(cores) == count > 1:
        os.sched_setaffinity(0, {sorted(cores)[index % count]})
        _allowed.update(cores)


@contextmanager
def unpinned() -> Iterator[None]:
    """Child processes that start inside the block may run on all cores: kernels may need several for long."""
    if not _allowed:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
