"""Calls that a cell waits for at the same time. Runs inside the kernel.

A cell waits for several calls at the same time in tasks (``asyncio.gather``, ``create_task``,
``TaskGroup``), in a display and in a comprehension. Each of these is a `PendingCall` (`cells` makes them).
Its states:

    queued -> done (with a result or an error)
    queued -> dropped: an earlier call of its display failed, its coroutine was cancelled, or the cell was
    interrupted, which also cancels the tasks that it created, as `asyncio.run` does

The queue has the calls in the order in which the cell made them. It is sent to the host

* when the event loop has nothing else to run, or the display is complete;
* before a call that is not in the queue, so that no call overtakes an earlier one;
* at the end of the cell.

The host decides how many of the first calls share one message (`emulator.programs.order`); the others stay
queued. A call is never sent twice, and never before an earlier one.

Stops: nothing. The host does not trust a call that comes from here.
"""

# ruff: noqa: SLF001 - asyncio has no public way to these
import asyncio
import contextlib
import itertools
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from sandbox.inside.calls import (
    LARGEST_MESSAGE,
    request,
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

    def __init__(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        self.batch = 0
        """Calls of one display, comprehension or gather have the same number, other calls 0."""
        self._text = write_call(name, args, kwargs)
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._future: asyncio.Future[None] | None = None
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
    calls = as_batch(items)
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


def as_batch(items: Iterable[Any]) -> list[PendingCall]:
    """The pending calls among the items; they become a batch."""
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

    with on_interrupt(interrupt):
        yield


@contextlib.contextmanager
def on_interrupt(handler: Callable[..., None]) -> Iterator[None]:
    earlier = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


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
