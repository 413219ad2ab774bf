"""Event loops and threads without system calls, so both work behind the fence.

* A loop has no I/O and a virtual clock: if nothing is ready, the clock jumps to the next timer. Calls of
  tools take no time.
* Threads and executors run inline: a thread when it starts, a function when it is submitted. A program
  whose threads wait for one another gets a RuntimeError that says so. The calls that several of them make at
  the same place are one batch (`Turn`), until the program waits for one of them.

Sets of tasks are ordered, so that a replay does the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import queue
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.programs.inside import clock
from sandbox.programs.inside.results import (
    WATCH,
    ToolError,
    is_failed,
    is_unknown,
    must_have_succeeded,
    settled,
)

# ruff: noqa: SLF001 - asyncio has no public way to these

ONE_AFTER_THE_OTHER = (
    "threads run one after the other here, and this one waits for another; "
    "call the functions in order instead"
)


class _NoSelector:
    """There is nothing to wait for but time."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError(
                "deadlock: every coroutine waits for something that will never happen"
            )
        clock.advance(max(timeout, 0))
        return []

    def close(self) -> None:
        """There is nothing to close."""


class Loop(asyncio.BaseEventLoop):
    """An event loop without I/O whose clock is `clock`."""

    _selector: Any
    _ready: deque[Any]

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._iteration = 0
        self._main: asyncio.Future[Any] | None = None

    def time(self) -> float:
        return clock.elapsed()

    def run_until_complete(self, future: Any) -> Any:
        self._main = asyncio.ensure_future(future, loop=self)
        with running(None):
            return super().run_until_complete(self._main)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        # What starts in the same iteration runs at the same time.
        pool = Executor(group=-self._iteration)
        return asyncio.wrap_future(pool.submit(func, *args), loop=self)

    def _run_once(self) -> None:
        self._iteration += 1
        later: list[Any] = []
        if self._main is not None and self._main.done():
            # Only stop: a task that nobody awaits makes no more calls.
            stop = asyncio.base_events._run_until_complete_cb  # type: ignore[attr-defined]
            later = [one for one in self._ready if one._callback is not stop]
            self._ready = deque(one for one in self._ready if one._callback is stop)
        super()._run_once()  # type: ignore[misc]
        self._ready.extend(later)

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """No other thread waits for this one."""


# Tasks


def in_task() -> bool:
    return asyncio._get_running_loop() is not None and asyncio.current_task() is not None


@contextlib.contextmanager
def running(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """As in a notebook, a statement may make tasks although it awaits nothing, and may run a loop."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


def _is_result(value: Any) -> bool:
    return is_unknown(value) or is_failed(value)


def awaitable(value: Any) -> Any:
    """What ``await`` gets: a result of a tool is no awaitable, but models await it."""
    if _is_result(value):
        return settled(value)
    if asyncio.isfuture(value) and WATCH.is_handled(sys._getframe(1)):
        return _succeeded(value)
    return (
        value if asyncio.iscoroutine(value) or hasattr(type(value), "__await__") else settled(value)
    )


async def _succeeded(future: Any) -> Any:
    """The result of a task or of ``gather`` under a handler: a failed call raises here."""
    result = await future
    must_have_succeeded(result if type(result) is list else [result])
    return result


async def _member(value: Any) -> Any:
    return await awaitable(value)


async def guarded(value: Any) -> Any:
    """A member of ``gather(return_exceptions=True)``, or a task that begins under a handler: failed calls
    raise in it (`places.GUARDED`)."""
    result = await awaitable(value)
    if is_failed(result) and (result.raises or result is value):
        raise ToolError(result)
    return result


def _task(value: Any) -> Any:
    """What a task is made of for `value`. Under a handler, failed calls of the task raise."""
    if not _is_result(value) and asyncio.isfuture(value):
        return value
    if WATCH.is_handled(sys._getframe()):
        return guarded(value)
    return value if not _is_result(value) and asyncio.iscoroutine(value) else _member(value)


def _change_asyncio() -> None:
    package: Any = asyncio
    gather, wait, as_completed = asyncio.gather, asyncio.wait, asyncio.as_completed
    create_in_group = asyncio.TaskGroup.create_task

    def gather_results(*values: Any, return_exceptions: bool = False) -> Any:
        members = map(guarded if return_exceptions else _task, values)
        return gather(*members, return_exceptions=return_exceptions)

    async def wait_ordered(fs: Iterable[Any], **options: Any) -> Any:
        futures = [asyncio.ensure_future(_task(one)) for one in dict.fromkeys(fs)]
        done, pending = await wait(futures, **options)
        return (
            OrderedSet(one for one in futures if one in done),
            OrderedSet(one for one in futures if one in pending),
        )

    def as_completed_ordered(fs: Iterable[Any], **options: Any) -> Any:
        return as_completed([asyncio.ensure_future(_task(one)) for one in fs], **options)

    def create_task_in_group(group: Any, coroutine: Any, **options: Any) -> Any:
        return create_in_group(group, _task(coroutine), **options)

    package.gather, package.wait = gather_results, wait_ordered
    package.as_completed = as_completed_ordered
    package.TaskGroup.create_task = create_task_in_group
    for name in ("wait_for", "shield", "create_task", "ensure_future"):
        setattr(package, name, _first_as_task(getattr(asyncio, name)))
    package.run = _run_any(asyncio.run)
    package.new_event_loop = package.events.new_event_loop = Loop
    find: Any = getattr(asyncio.events, "_get_event_loop_policy", None)  # from Python 3.14
    policy: Any = find() if find else asyncio.get_event_loop_policy()
    type(policy)._loop_factory = Loop


def _run_any(run: Any) -> Any:
    @functools.wraps(run)
    def run_any(main: Any, **options: Any) -> Any:
        """As models write it: also for ``gather(...)``, and inside another loop."""
        if asyncio.isfuture(main):
            return main.get_loop().run_until_complete(main)
        with running(None):
            return run(_task(main), **options)

    return run_any


def _first_as_task(function: Any) -> Any:
    @functools.wraps(function)
    def with_task(value: Any, *args: Any, **options: Any) -> Any:
        return function(_task(value), *args, **options)

    return with_task


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


# Threads


@dataclass
class Turn:
    """The part of the work of threads or of an executor that runs now."""

    group: int
    """Equal for what runs at the same time."""
    call_counts: Counter[Any] = field(default_factory=Counter)
    """The number of calls that the turn has made at each place."""


TURNS: list[Turn] = []
"""The turn that runs is the last one."""
_groups = itertools.count(1)
_threads = [next(_groups)]
"""The group of the threads that start now."""


class _Future(concurrent.futures.Future[Any]):
    """A future of an executor whose program waits for it."""

    on_wait: Callable[[], None]

    def result(self, timeout: float | None = None) -> Any:
        self.on_wait()
        result = super().result(timeout)
        if WATCH.is_handled(sys._getframe(1)):
            must_have_succeeded([result])
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.on_wait()
        return super().exception(timeout)


class Executor(concurrent.futures.Executor):
    """Runs each function when it is submitted."""

    def __init__(self, *args: Any, group: int = 0, **kwargs: Any) -> None:  # noqa: ARG002
        self._group = group or next(_groups)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        future = _Future()
        future.on_wait = self._start_group
        try:
            future.set_result(_in_turn(self._group, fn, *args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future

    def _start_group(self) -> None:
        self._group = next(_groups)


def _in_turn(group: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    TURNS.append(Turn(group))
    try:
        return function(*args, **kwargs)
    finally:
        TURNS.pop()


def _start(thread: Any) -> None:
    if thread._started.is_set():
        raise RuntimeError("threads can only be started once")
    thread._started.set()
    try:
        _in_turn(_threads[0], thread.run)
    except SystemExit:
        pass
    except Exception as error:  # noqa: BLE001 - it is printed, and ends the thread alone
        details = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
        threading.excepthook(details)


def _join(thread: Any, timeout: float | None = None) -> None:  # noqa: ARG001 - it has ended
    _threads[0] = next(_groups)


def _wait(event: threading.Event, timeout: float | None = None) -> bool:
    return event.is_set() or _would_wait(timeout)


def _would_wait(timeout: float | None) -> bool:
    """No thread is left that could end the wait. Returns False if a timeout ends it."""
    if timeout is None:
        raise RuntimeError(ONE_AFTER_THE_OTHER)
    clock.advance(timeout)
    return False


def _change_threads() -> None:
    futures: Any = concurrent.futures
    threads: Any = threading
    futures.ThreadPoolExecutor = futures.ProcessPoolExecutor = Executor
    futures.thread.ThreadPoolExecutor = Executor
    futures.as_completed = lambda fs, timeout=None: iter(list(dict.fromkeys(fs)))  # noqa: ARG005
    threads.Thread.start, threads.Thread.join, threads.Event.wait = _start, _join, _wait
    threads.Thread.is_alive = lambda thread: False  # noqa: ARG005
    threads.Condition.wait = lambda condition, timeout=None: _would_wait(timeout)  # noqa: ARG005
    get, put = queue.Queue.get, queue.Queue.put
    queues: Any = queue.Queue

    def get_now(items: Any, block: bool = True, timeout: float | None = None) -> Any:
        return get(items, block and not (items.empty() and not _would_wait(timeout)), timeout)

    def put_now(items: Any, item: Any, block: bool = True, timeout: float | None = None) -> None:
        put(items, item, block and not (items.full() and not _would_wait(timeout)), timeout)

    queues.get, queues.put = get_now, put_now


def install() -> None:
    """Once, in the server."""
    _change_asyncio()
    _change_threads()
