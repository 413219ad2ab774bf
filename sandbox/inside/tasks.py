"""Calls that a cell waits for at the same time, and the changes to asyncio for them. Runs inside the kernel.

A cell waits for several calls at the same time in tasks (``asyncio.gather``, ``create_task``,
``TaskGroup``), in a display and in a comprehension; a program in tasks. Each of these is a `PendingCall`
(`cells` makes them, and names with the prefix `AWAITABLE`). Its states:

    made -> queued: a cell's immediately, a program's when it is awaited, as a coroutine starts
    queued -> done (with a result or an error)
    queued -> dropped: an earlier call of its display failed, its coroutine was cancelled, or the cell was
    interrupted, which also cancels the tasks that it created, as `asyncio.run` does

The queue has the calls in the order in which the cell made them. It is sent to the host

* when the event loop has nothing else to run, or the display is complete;
* before a call that is not in the queue, so that no call overtakes an earlier one;
* at the end of the cell.

The host decides how many of the first calls share one message (`emulator.programs.order`); the others stay
queued. A call is never sent twice, and never before an earlier one.

asyncio's clock stops while the cell waits for the host, so that no timeout of the cell expires meanwhile.

Stops: nothing. The host does not trust a call that comes from here.
"""

# ruff: noqa: SLF001 - asyncio has no public way to these
import asyncio
import contextlib
import itertools
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any

from sandbox.inside.calls import (
    LARGEST_MESSAGE,
    in_main_thread,
    request,
    seconds_waited,
    write_call,
)
from sandbox.inside.values import ToolError, received

_MOST_CALLS = 64
"""Of one message."""
_MOST_TURNS = 1000
"""Turns of the event loop before the queue is sent although other tasks are ready: one may only be
polling."""


class PendingCall:
    """A call whose result the cell awaits. Raises as `write_call`."""

    def __init__(
        self, name: str, /, *args: Any, starts_awaited: bool = False, **kwargs: Any
    ) -> None:
        self.batch = 0
        """Calls of one display, comprehension or gather have the same number, other calls 0."""
        self._text = write_call(name, args, kwargs)
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._future: asyncio.Future[None] | None = None
        if not starts_awaited:
            _queue.append(self)

    @property
    def payload(self) -> str:
        return f'{self._text[:-1]}, "batch": {self.batch}}}'

    def finish(self, value: Any = None, error: Exception | None = None) -> None:
        self._done, self._value, self._error = True, value, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def drop(self) -> None:
        """Remove the call from the queue, if it has not been sent."""
        if self in _queue:
            _queue.remove(self)

    def wait(self) -> Any:
        """Send the queue until the result has come, and return it."""
        while not self._done:
            _send()
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._done:
            loop = asyncio.get_running_loop()
            if self._future is None:
                self._future = loop.create_future()
                if self not in _queue:
                    _queue.append(self)
            _send_when_idle(loop)
            try:
                yield from self._future
            except BaseException:  # cancelled
                self.drop()
                raise
        return self.wait()


_queue: deque[PendingCall] = deque()
_watched: list[asyncio.AbstractEventLoop] = []
"""The event loop that will send the queue when it is idle."""
_batches = itertools.count(1)
_earlier: set[asyncio.Task[Any]] = set()
"""The tasks of the kernel's event loop that existed when the cell started."""


def wait_together(display: Any) -> Any:
    """Return a list, tuple or dict with the results of the pending calls in it.

    If one of them raises, those after it are not made, as if they had been made one after the other.
    """
    items = display.values() if isinstance(display, dict) else display
    calls = _as_batch(items)
    try:
        for call in calls:
            call.wait()
    except BaseException:
        for call in calls:
            call.drop()
        raise
    results = (item.wait() if isinstance(item, PendingCall) else item for item in items)
    if isinstance(display, dict):
        return dict(zip(display, results, strict=True))
    return type(display)(results)


def _as_batch(items: Iterable[Any]) -> list[PendingCall]:
    calls = [item for item in items if isinstance(item, PendingCall)]
    batch = next(_batches)
    for call in calls:
        call.batch = batch
    return calls


def send_all() -> None:
    """Send the queue until it is empty."""
    while _queue:
        _send()


def start_cell() -> None:
    _earlier.clear()
    _earlier.update(_tasks())


def drop_all() -> None:
    """Drop the pending calls of an interrupted cell, and cancel its tasks, which could make others."""
    _queue.clear()
    _watched.clear()
    for task in _tasks() - _earlier:
        task.cancel("the cell was interrupted")


def _tasks() -> set[asyncio.Task[Any]]:
    loop = asyncio._get_running_loop()
    return asyncio.all_tasks(loop) if loop else set()


@contextlib.contextmanager
def interruptible(cell: asyncio.Task[Any]) -> Iterator[None]:
    """Let an interrupt cancel a cell that awaits something, and the task that runs when it comes.

    Replaces ipykernel's way, which neither wakes an idle event loop nor stops code that never awaits
    (ipykernel 7.4 with tornado 6.6).
    """
    loop = asyncio.get_running_loop()

    def interrupt(*_: Any) -> None:
        loop.call_soon_threadsafe(cell.cancel)  # also wakes the loop
        if asyncio.current_task(loop) is not None:
            raise asyncio.CancelledError

    with _on_interrupt(interrupt):
        yield


@contextlib.contextmanager
def _on_interrupt(handler: Callable[..., None]) -> Iterator[None]:
    earlier = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


def _raise_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _send() -> None:
    """Send the first calls of the queue, as many as one message may have, and store the results that come."""
    calls: list[PendingCall] = []
    size = 0
    for call in itertools.islice(_queue, _MOST_CALLS):
        size += len(call.payload) + 1
        if calls and size > LARGEST_MESSAGE:
            break
        calls.append(call)
    try:
        results = request(f"[{','.join(call.payload for call in calls)}]")
    except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
        _queue.popleft().finish(error=error)
    else:
        for result in map(received, results[: len(calls)]):
            failed = isinstance(result, ToolError)
            _queue.popleft().finish(None if failed else result, result if failed else None)


def _send_when_idle(loop: asyncio.AbstractEventLoop) -> None:
    if loop not in _watched:
        _watched[:] = [loop]
        loop.call_soon(_check_idle, loop, 0)


def _check_idle(loop: Any, turns: int) -> None:
    if _queue and (loop._ready or loop._stopping) and turns < _MOST_TURNS:
        loop.call_soon(_check_idle, loop, turns + 1)
        return
    _watched.clear()
    if _queue:
        _send()
    if _queue:
        _send_when_idle(loop)


# asyncio


def change_asyncio() -> None:
    """Let asyncio take pending calls, and plain values, which are results of calls that were made already.

    Sets of tasks become ordered, so that a program which is run again does the same.
    """
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
        _as_batch(values)
        return gather(*map(_awaitable, values), **options)

    async def wait_ordered(fs: Iterable[Any], **options: Any) -> Any:
        futures = list(dict.fromkeys(fs))
        done, pending = await wait(futures, **options)
        return (
            OrderedSet(f for f in futures if f in done),
            OrderedSet(f for f in futures if f in pending),
        )

    def as_completed_ordered(fs: Iterable[Any], **options: Any) -> Any:
        return as_completed([ensure_future(f) for f in fs], **options)

    loops.create_task = create_task
    loops.time = lambda _: time.monotonic() - seconds_waited()
    package.run = _run_nested
    for module in (tasks, package):
        module.ensure_future = module._ensure_future = ensure_future
        module.gather, module.wait = gather_batch, wait_ordered
        module.as_completed = as_completed_ordered


async def settled(value: Any) -> Any:
    """What ``await value`` returns where `value` may be the plain result of a call."""
    return await value if isinstance(value, Awaitable) else value


def _awaitable(value: Any) -> Any:
    """`value`, as a coroutine if a task could not be made of it otherwise."""
    if isinstance(value, PendingCall) or not isinstance(value, Awaitable):
        return settled(value)
    return value


def _run_nested(main: Any, **kwargs: Any) -> Any:
    """asyncio.run for code that already runs in the kernel's loop: models write it by habit."""
    interrupts: Any = contextlib.nullcontext()
    if in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # asyncio's own handler would only cancel the main task, which may never await.
        interrupts = _on_interrupt(_raise_interrupt)
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


class OrderedSet(set[Any]):
    """A set whose items come in the order in which they were given."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)
        super().__init__(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (item for item in self._items if item in self)

    def pop(self) -> Any:
        item = next(iter(self))
        self.remove(item)
        return item
