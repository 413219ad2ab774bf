"""A process that stays on one core, and what it starts that does not. On Linux; elsewhere nothing happens.

Of the threads of a Python process one runs at a time. Where they may run on several cores, each hands over to
one that has to be woken on another: with 16 requests at once that took 15 to 20 % of a worker's CPU. Staying
is for where each core has such a process: where one is free, whatever needs no interpreter may run there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_allowed: set[int] = set()
"""Cores of this process before it went to stay on one; empty: it has not."""


def pin_to_core(place: int, of: int) -> None:
    """Of ``of`` processes this is number ``place``; if there are as many cores, it stays on one of its own.

    To be called before it has threads. What it starts stays there too, unless it is started `unpinned`.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = os.sched_getaffinity(0)
    if len(cores) == of > 1:
        os.sched_setaffinity(0, {sorted(cores)[place % of]})
        _allowed.update(cores)


@contextmanager
def unpinned() -> Iterator[None]:
    """What is started in the block may run on all cores: it may want more than one, and for long."""
    if not _allowed:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
