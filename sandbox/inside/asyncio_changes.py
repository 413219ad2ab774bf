"""The changes to asyncio in a kernel, which let it take pending calls (`tasks`). Runs inside the kernel.

asyncio's clock stops while the cell waits for the host, so that no timeout of the cell expires meanwhile.
"""

# ruff: noqa: SLF001 - asyncio has no public way to these
import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any

from sandbox.inside.calls import in_main_thread, seconds_waited
from sandbox.inside.tasks import PendingCall, as_batch, on_interrupt


def change_asyncio() -> None:
    """Let asyncio take pending calls, and plain values, which are results of calls that were made already."""
    tasks: Any = asyncio.tasks
    package: Any = asyncio
    loops: Any = asyncio.BaseEventLoop
    gather, wait, as_completed = asyncio.gather, asyncio.wait, asyncio.as_completed
    # Up to Python 3.11 `gather` and others use one behind the public one.
    ensure = getattr(asyncio.tasks, "_ensure_future", asyncio.ensure_future)
    create = asyncio.BaseEventLoop.create_task

    def ensure_future(value: Any, *, loop: Any = None) -> Any:
        return ensure(_awaitable(value), loop=loop)

    def create_task(loop: Any, value: Any, **options: Any) -> Any:
        return create(loop, _awaitable(value), **options)

    def gather_batch(*values: Any, **options: Any) -> Any:
        as_batch(values)
        return gather(*map(_awaitable, values), **options)

    async def wait_together(fs: Iterable[Any], **options: Any) -> Any:
        return await wait([ensure_future(f) for f in fs], **options)

    def as_completed_together(fs: Iterable[Any], **options: Any) -> Any:
        return as_completed([ensure_future(f) for f in fs], **options)

    loops.create_task = create_task
    loops.time = lambda _: time.monotonic() - seconds_waited()
    package.run = _run_nested
    for module in (tasks, package):
        module.ensure_future = module._ensure_future = ensure_future
        module.gather, module.wait = gather_batch, wait_together
        module.as_completed = as_completed_together


async def settled(value: Any) -> Any:
    """What ``await value`` returns where `value` may be the plain result of a call."""
    return await value if isinstance(value, Awaitable) else value


def _awaitable(value: Any) -> Any:
    """`value`, as a coroutine if a task could not be made of it otherwise."""
    if isinstance(value, PendingCall) or not isinstance(value, Awaitable):
        return settled(value)
    return value


def _raise_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _run_nested(main: Any, **kwargs: Any) -> Any:
    """asyncio.run for code that already runs in the kernel's loop: models write it by habit."""
    interrupts: Any = contextlib.nullcontext()
    if in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # asyncio's own handler would only cancel the main task, which may never await.
        interrupts = on_interrupt(_raise_interrupt)
    with outside_loop(), interrupts, asyncio.Runner(**kwargs) as runner:
        return runner.run(_awaitable(main))


@contextlib.contextmanager
def outside_loop() -> Iterator[None]:
    """Let code inside a loop run another one, as if it were outside."""
    outer, task = asyncio._get_running_loop(), None
    if outer is not None and (task := asyncio.current_task(outer)) is not None:
        asyncio._leave_task(outer, task)  # since 3.14 a thread has a current task, not a loop
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        asyncio.set_event_loop(outer)
        if outer is not None and task is not None:
            asyncio._enter_task(outer, task)
