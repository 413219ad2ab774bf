"""Executors and asyncio's threads are given tools by a cell. Runs inside the kernel.

A tool is a call of the queue (`tasks`), so that those which are given together leave together. A
function that calls tools runs at once, since only the kernel's own thread can ask the host. All else runs in
threads.

Stops: nothing.
"""

import asyncio
import concurrent.futures
import functools
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import CodeType
from typing import Any

from sandbox.inside.groups import OFFERED, Later
from sandbox.inside.tasks import Asked, awaited, make_waiting, now

_MOST_DEPTH = 8


class _Future(Future[Any]):
    """Of a call in the queue: who asks for its result lets all that wait be made."""

    def result(self, timeout: float | None = None) -> Any:
        make_waiting()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        make_waiting()
        return super().exception(timeout)

    def done(self) -> bool:
        make_waiting()
        return super().done()


def run_beside() -> None:
    """Let executors, and asyncio's threads, be given tools and functions that call them."""
    _change_executors()
    _change_loops()


def _change_executors() -> None:
    submit, shutdown = ThreadPoolExecutor.submit, ThreadPoolExecutor.shutdown
    completed, wait = concurrent.futures.as_completed, concurrent.futures.wait

    def submit_call(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if not calls_tools(function):
            return submit(pool, function, *args, **kwargs)
        future = _Future()
        if (called := _tool(function, args, kwargs)) is None:
            _run(future, functools.partial(function, *args, **kwargs))
        else:
            call = Asked(called)
            call.waiting = lambda: _run(future, call.result)
            if call.done:
                call.waiting()
        return future

    def shutdown_after(pool: Any, wait: bool = True, **options: Any) -> None:
        make_waiting()
        shutdown(pool, wait, **options)

    def as_completed(fs: Iterable[Any], timeout: float | None = None) -> Any:
        make_waiting()
        return completed(fs, timeout)

    def wait_for(fs: Iterable[Any], *args: Any, **options: Any) -> Any:
        make_waiting()
        return wait(fs, *args, **options)

    futures: Any = concurrent.futures
    pools: Any = ThreadPoolExecutor
    pools.submit, pools.shutdown = submit_call, shutdown_after
    futures.as_completed, futures.wait = as_completed, wait_for


def _change_loops() -> None:
    to_thread, in_executor = asyncio.to_thread, asyncio.BaseEventLoop.run_in_executor

    def in_thread(
        function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        if not calls_tools(function):
            return to_thread(function, *args, **kwargs)
        if (called := _tool(function, args, kwargs)) is not None:
            return awaited(Asked(called))
        return _called(functools.partial(function, *args, **kwargs))

    def run_in_executor(loop: Any, pool: Executor | None, function: Any, *args: Any) -> Any:
        if calls_tools(function):
            return loop.create_task(in_thread(function, *args))
        return in_executor(loop, pool, function, *args)

    package: Any = asyncio
    base: Any = asyncio.BaseEventLoop
    package.to_thread, base.run_in_executor = in_thread, run_in_executor
    base.time = now


async def _called(function: Callable[[], Any]) -> Any:
    return function()


def _run(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 - it is the future's
        future.set_exception(error)


def _tool(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Later | None:
    """The call, where a function is a tool, or one with some of its arguments."""
    while isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    if all(function is not tool for tool in OFFERED.values()):
        return None
    return Later(0, 0, function, *args, **kwargs)


def calls_tools(function: Any, depth: int = 0) -> bool:
    """Whether a function is a tool, or names one, or another that does."""
    while isinstance(function, functools.partial):
        function = function.func
    if any(function is tool for tool in OFFERED.values()):
        return True
    function = getattr(function, "__func__", function)
    code, variables = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if (
        not isinstance(code, CodeType)
        or depth > _MOST_DEPTH
        or "ipykernel_" not in code.co_filename
    ):
        return False
    cells = getattr(function, "__closure__", None) or ()
    inside = [variables.get(name) for name in _names(code)]
    inside += [_content(cell) for cell in cells]
    return any(calls_tools(each, depth + 1) for each in inside if callable(each))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names(code: CodeType) -> set[str]:
    """The global names that a function and those within it read."""
    found = {*code.co_names}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _names(inner)
    return found
