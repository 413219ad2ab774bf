"""Event loops for a program, which is run again: they must do the same each time. Runs inside the kernel.

The program's coroutines run in loops of its own, inside the kernel's. Their clock does not run: if nothing is
ready, it jumps to the next timer. So a sleep takes no time, calls of tools take none either, and a timeout
expires only if the program itself lets it.

Stops: nothing.
"""

import asyncio
import selectors
import threading
from typing import Any

from sandbox.inside.asyncio_changes import outside_loop

_SECONDS = 1.0
"""Seconds to wait for a thread of the program, if no coroutine can continue and there is no timer."""
_THREADS = ("asyncio_", "ThreadPoolExecutor", "waitpid-")


class _Selector(selectors.DefaultSelector):
    skipped = 0.0
    """Seconds by which the clock has jumped."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None:
            self.skipped += max(timeout, 0)
            return super().select(0)
        # One file is the loop's own; others, and these threads, belong to processes and executors.
        others = len(self.get_map()) > 1 or any(
            thread.name.startswith(_THREADS) for thread in threading.enumerate()
        )
        found = super().select(None if others else _SECONDS)
        if not found and not others:
            raise RuntimeError(
                "deadlock: every coroutine waits for something that will never happen"
            )
        return found


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.skipped


def use_own_loops(shell: Any) -> None:
    """Let asyncio make such loops. Code whose top level awaits nothing runs outside the kernel's loop."""
    package: Any = asyncio
    package.new_event_loop = package.events.new_event_loop = _Loop
    run_cell = shell.run_cell
    current: asyncio.AbstractEventLoop | None = _Loop()

    def run_outside(*args: Any, **kwargs: Any) -> Any:
        nonlocal current
        with outside_loop():
            asyncio.set_event_loop(current)
            try:
                return run_cell(*args, **kwargs)
            finally:
                try:
                    current = asyncio.get_event_loop()
                except RuntimeError:
                    current = None

    shell.run_cell = run_outside
