"""Run a program's threads one after the other, so that it does the same each time. Runs inside the kernel.

A thread that the program starts runs when the program waits for something: `join`, an empty queue, an event,
`sleep`, the end of the program; executors run what they are given at once. A program that needs two threads
at the same time is refused with a reason. Awaited values that are no awaitables are their own result, since
tools answer at once.

Stops: nothing; it keeps order among friends.
"""

# ruff: noqa: SLF001 - threads and asyncio have no public way to these
import asyncio
import concurrent.futures
import queue
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

REASON = (
    "threads run one after the other here, and this one waits for another; "
    "call the functions in order instead"
)

_waiting: deque[threading.Thread] = deque()
_running: list[threading.Thread] = []
_own: dict[threading.Thread, bool] = {}
"""The program's threads, and whether each is over."""


_start, _join, _alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive
_wait = threading.Event.wait
_get, _put = queue.Queue.get, queue.Queue.put
_programs: list[Callable[[str], bool]] = []


def one_after_the_other(is_program: Callable[[str], bool]) -> None:
    """Change this kernel's threads. `is_program` says of a file name whether it is the program's code."""
    _programs.append(is_program)
    methods: dict[Any, dict[str, Any]] = {
        threading.Thread: {"start": _start_later, "join": _join_now, "is_alive": _is_alive},
        threading.Event: {"wait": _wait_event},
        queue.Queue: {"get": _get_now, "put": _put_now},
        concurrent.futures.ThreadPoolExecutor: {"submit": _submit, "map": Executor.map},
        concurrent.futures.ProcessPoolExecutor: {"submit": _submit, "map": Executor.map},
    }
    for owner, replaced in methods.items():
        for name, method in replaced.items():
            setattr(owner, name, method)
    futures: Any = concurrent.futures
    futures.as_completed = lambda fs, timeout=None: iter(list(dict.fromkeys(fs)))  # noqa: ARG005
    futures.wait = _wait_for
    _order_tasks()


def _from_program() -> bool:
    """Whether the program itself called what called this."""
    name = sys._getframe(2).f_code.co_filename
    return any(is_program(name) for is_program in _programs)


def _start_later(thread: threading.Thread) -> None:
    if not _from_program():
        _start(thread)
    elif thread in _own:
        raise RuntimeError("threads can only be started once")
    else:
        _own[thread] = False
        _waiting.append(thread)


def _join_now(thread: threading.Thread, timeout: float | None = None) -> None:
    if thread not in _own:
        _join(thread, timeout)
        return
    run_waiting()
    if not _own[thread]:
        raise RuntimeError(REASON)


def _is_alive(thread: threading.Thread) -> bool:
    return not _own[thread] if thread in _own else _alive(thread)


def _wait_event(event: threading.Event, timeout: float | None = None) -> bool:
    if event.is_set() or not _from_program():
        return _wait(event, timeout)
    run_waiting()
    if timeout is None and not event.is_set():
        raise RuntimeError(REASON)
    return event.is_set()


def _get_now(items: queue.Queue[Any], block: bool = True, timeout: float | None = None) -> Any:
    if not (block and items.empty() and _from_program()):
        return _get(items, block, timeout)
    run_waiting()
    if items.empty() and timeout is None:
        raise RuntimeError(REASON)
    return _get(items, False)


def _put_now(
    items: queue.Queue[Any], item: Any, block: bool = True, timeout: float | None = None
) -> None:
    if not (block and items.full() and _from_program()):
        _put(items, item, block, timeout)
        return
    run_waiting()
    if items.full() and timeout is None:
        raise RuntimeError(REASON)
    _put(items, item, False)


def run_waiting() -> None:
    """Run the threads that were started, in their order, and those that they start."""
    while _waiting:
        thread = _waiting.popleft()
        _running.append(thread)
        try:
            thread.run()
        except SystemExit:
            pass
        except Exception:  # noqa: BLE001 - what a thread raises is told, and ends the thread alone
            kind, error, trace = sys.exc_info()
            threading.excepthook(threading.ExceptHookArgs((kind, error, trace, thread)))
        finally:
            _own[thread] = True
            _running.pop()


def finish() -> None:
    """At the end of a program: its threads run to their ends, as Python waits for them."""
    daemons = [thread for thread in _waiting if thread.daemon]
    for thread in daemons:
        _waiting.remove(thread)
    run_waiting()


def _submit(_: Executor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - it is the future's
        future.set_exception(error)
    return future


class _Ordered(set[Any]):
    """A set of futures in the order in which the program gave them."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)
        super().__init__(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (item for item in self._items if item in self)

    def pop(self) -> Any:
        item = next(iter(self))
        self.remove(item)
        return item


def _wait_for(fs: Iterable[Any], timeout: Any = None, return_when: Any = None) -> Any:  # noqa: ARG001
    given = list(dict.fromkeys(fs))
    done = _Ordered(f for f in given if f.done())
    rest = _Ordered(f for f in given if not f.done())
    return concurrent.futures._base.DoneAndNotDoneFutures(done, rest)


def _order_tasks() -> None:
    """Make asyncio's sets of tasks ordered, and let it await plain values."""
    wait, completed = asyncio.wait, asyncio.as_completed
    # Up to Python 3.11 `gather` and the like use one behind the public one.
    ensure = getattr(asyncio.tasks, "_ensure_future", asyncio.ensure_future)
    create = asyncio.BaseEventLoop.create_task

    async def value_of(value: Any) -> Any:
        return value

    def coroutine(value: Any) -> Any:
        return value if isinstance(value, Awaitable) else value_of(value)

    def ensure_future(value: Any, *, loop: Any = None) -> Any:
        return ensure(coroutine(value), loop=loop)

    def create_task(loop: Any, value: Any, **options: Any) -> Any:
        return create(loop, coroutine(value), **options)

    async def wait_ordered(fs: Iterable[Any], **options: Any) -> Any:
        given = list(dict.fromkeys(fs))
        done, rest = await wait(given, **options)
        return _Ordered(f for f in given if f in done), _Ordered(f for f in given if f in rest)

    def as_completed(fs: Iterable[Any], **options: Any) -> Any:
        return completed([ensure_future(f) for f in fs], **options)

    async def to_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def run_in_executor(loop: Any, _: Any, function: Callable[..., Any], *args: Any) -> Any:
        return loop.create_task(to_thread(function, *args))

    tasks: Any = asyncio.tasks
    package: Any = asyncio
    base: Any = asyncio.BaseEventLoop
    base.create_task, base.run_in_executor = create_task, run_in_executor
    for module in (tasks, package):
        module.ensure_future = module._ensure_future = ensure_future
        module.wait, module.as_completed = wait_ordered, as_completed
    package.to_thread = to_thread


async def settled(value: Any) -> Any:
    """What ``await value`` gives where a tool's plain result is awaited."""
    return await value if isinstance(value, Awaitable) else value
