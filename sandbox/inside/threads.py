"""Run threads and executors one after the other. Runs inside the kernel.

Only the main thread can ask the host (`calls`). So the functions of a cell that call the host run there. All
other threads of a cell are ordinary ones.

A thread that takes turns is

    waiting -> running -> over

It waits, once it is started, until the main thread waits for something: `join`, an empty or full queue, an
event, `sleep`, or the end of the code (where threads that are daemons are dropped). What an executor,
`to_thread` or `run_in_executor` is given runs immediately. Two of them never run at the same time: a
program that needs this, for instance since a thread waits for another one, gets a RuntimeError.

Stops: nothing; it keeps order among friends.
"""

import asyncio
import functools
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import CodeType
from typing import Any

from sandbox.inside.calls import OFFERED, ONE_AFTER_THE_OTHER, in_main_thread

_waiting: deque[threading.Thread] = deque()
_over: dict[threading.Thread, bool] = {}
"""The threads that take turns, and whether each is over."""

_MOST_DEPTH = 8


def take_turns() -> None:
    """Change this kernel's threads and executors, for functions that call the host."""
    methods: dict[Any, dict[str, Any]] = {
        threading.Thread: {"start": _start, "join": _join, "is_alive": _is_alive},
        threading.Event: {"wait": _wait},
        queue.Queue: {"get": _get, "put": _put},
        asyncio.BaseEventLoop: {"run_in_executor": _run_in_executor},
    }
    for pool in (ThreadPoolExecutor, ProcessPoolExecutor):
        methods[pool] = {"submit": _submit(pool.submit), "map": _map(pool.map)}
    for owner, replaced in methods.items():
        for name, method in replaced.items():
            setattr(owner, name, method)
    package: Any = asyncio
    package.to_thread = _to_thread


# Which functions


def calls_host(function: Any, depth: int = 0) -> bool:
    """Return True if a function is an offered one, or code of the user that names one, or a function that
    does."""
    while isinstance(function, functools.partial):
        function = function.func
    if any(function is offered for offered in OFFERED.values()):
        return True
    function = getattr(function, "__func__", function)
    code, variables = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if not isinstance(code, CodeType) or depth > _MOST_DEPTH or not _is_users(code):
        return False
    cells = getattr(function, "__closure__", None) or ()
    inside = [variables.get(name) for name in _global_names(code)]
    inside += [_content(cell) for cell in cells]
    return any(calls_host(each, depth + 1) for each in inside if callable(each))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _global_names(code: CodeType) -> set[str]:
    """The global names that a function, and those within it, read."""
    found = {*code.co_names}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _global_names(inner)
    return found


def _is_users(code: CodeType) -> bool:
    """Return True for code of a program or a cell, False for a library's."""
    return "ipykernel_" in code.co_filename


def _called_by_user() -> bool:
    """Return True if the user's code itself called the caller of this function."""
    return _is_users(sys._getframe(2).f_code)  # noqa: SLF001 - frames have no public way to their callers


# Threads

_real_start, _real_join = threading.Thread.start, threading.Thread.join
_real_is_alive, _real_wait = threading.Thread.is_alive, threading.Event.wait
_real_get, _real_put = queue.Queue.get, queue.Queue.put


def _start(thread: threading.Thread) -> None:
    target = vars(thread).get("_target") or thread.run
    if not (_called_by_user() and calls_host(target)):
        _real_start(thread)
    elif thread in _over:
        raise RuntimeError("threads can only be started once")
    else:
        _over[thread] = False
        _waiting.append(thread)


def _join(thread: threading.Thread, timeout: float | None = None) -> None:
    if thread not in _over:
        _real_join(thread, timeout)
        return
    run_waiting()
    if not _over[thread]:
        raise RuntimeError(ONE_AFTER_THE_OTHER)


def _is_alive(thread: threading.Thread) -> bool:
    return not _over[thread] if thread in _over else _real_is_alive(thread)


def _wait(event: threading.Event, timeout: float | None = None) -> bool:
    if not event.is_set() and _called_by_user():
        run_waiting()
    return _real_wait(event, timeout)


def _get(items: queue.Queue[Any], block: bool = True, timeout: float | None = None) -> Any:
    if block and items.empty() and _called_by_user():
        run_waiting()
    return _real_get(items, block, timeout)


def _put(
    items: queue.Queue[Any], item: Any, block: bool = True, timeout: float | None = None
) -> None:
    if block and items.full() and _called_by_user():
        run_waiting()
    _real_put(items, item, block, timeout)


def run_waiting() -> None:
    """Run the threads that wait, in the order of their starts, and those that they start."""
    while _waiting and in_main_thread():
        thread = _waiting.popleft()
        try:
            thread.run()
        except SystemExit:
            pass
        except Exception:  # noqa: BLE001 - it is printed, and ends the thread alone
            kind, error, trace = sys.exc_info()
            threading.excepthook(threading.ExceptHookArgs((kind, error, trace, thread)))
        finally:
            _over[thread] = True


def drop_waiting(*, daemons: bool = False) -> None:
    """End the threads that wait without running them: all, or only daemons."""
    for thread in [*_waiting]:
        if thread.daemon or not daemons:
            _waiting.remove(thread)
            _over[thread] = True


def finish() -> None:
    """Run the threads that wait at the end of the code, except daemons."""
    drop_waiting(daemons=True)
    run_waiting()


# Executors

_real_to_thread, _real_run_in_executor = asyncio.to_thread, asyncio.BaseEventLoop.run_in_executor


def _submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_or_run(
        pool: Executor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        if not calls_host(function):
            return submit(pool, function, *args, **kwargs)
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future

    return submit_or_run


def _map(pool_map: Callable[..., Any]) -> Callable[..., Any]:
    def map_or_run(
        pool: Executor, function: Callable[..., Any], /, *iterables: Any, **options: Any
    ) -> Any:
        if not calls_host(function):
            return pool_map(pool, function, *iterables, **options)
        return Executor.map(pool, function, *iterables, timeout=options.get("timeout"))

    return map_or_run


async def _to_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if calls_host(function):
        return function(*args, **kwargs)
    return await _real_to_thread(function, *args, **kwargs)


def _run_in_executor(loop: Any, pool: Any, function: Callable[..., Any], *args: Any) -> Any:
    if calls_host(function):
        return loop.create_task(_to_thread(function, *args))
    return _real_run_in_executor(loop, pool, function, *args)
