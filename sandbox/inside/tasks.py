"""Calls that a cell's tasks await at the same time leave together. Runs inside the kernel.

A task that awaits a call waits in a queue, while the others run on to theirs; when nothing else can run,
the calls in the queue are told to the host, which decides how many of them leave. A call that nobody could
be beside is made at once. Time stands still for asyncio while the host is waited for.

Stops: nothing; the host reads what comes from here as it reads any call.
"""

# ruff: noqa: SLF001 - asyncio has no public way to these
import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator
from types import CodeType
from typing import Any

from sandbox.inside.groups import LARGEST_CALL, MOST_AHEAD, Later, begin, groups, place

_MOST_TURNS = 1000
"""How often the other tasks get their turn before calls leave; a task that only waits takes one each time."""


class Asked:
    """A call in the queue, its result when that is there."""

    def __init__(self, later: Later) -> None:
        self.later = later
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.waiting: Callable[[], None] | None = None
        try:
            text = later.written()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
            text, self.done, self.error = None, True, error
        self.text: str | None = text
        if not self.done:
            _queue.append(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self.done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.waiting = lambda: None if future.done() else future.set_result(None)
            _when_idle(loop)
            yield from future
        return self.result()

    def end(self, value: Any, error: Exception | None = None) -> None:
        self.done, self.value, self.error = True, value, error
        if self.waiting is not None:
            self.waiting()

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


_queue: deque[Asked] = deque()
_idle_in: list[asyncio.AbstractEventLoop] = []
"""The loop that makes the calls of the queue when it is idle."""
_making = False
_stood_still = 0.0
"""Seconds in which the host was waited for."""


def now(_: object) -> float:
    """The time of event loops, in seconds."""
    return time.monotonic() - _stood_still


def forget() -> None:
    """What a cell has left behind, another does not see."""
    _queue.clear()
    _idle_in.clear()


def make_waiting() -> None:
    """Make all calls of the queue."""
    while _queue and not _making:
        _make_some()


def _make_some() -> None:
    """Make the first of the queue, and those after it that may leave beside it."""
    global _stood_still, _making  # noqa: PLW0603 - one kernel, one queue
    first, *others = itertools.islice(_queue, MOST_AHEAD)
    together, size = [first], len(first.text or "")
    for each in others:
        size += len(each.text or "")
        if first.text is None or each.text is None or size > LARGEST_CALL:
            break
        together.append(each)
    taken = [_queue.popleft() for _ in together]
    began = time.monotonic()
    _making = True
    try:
        if len(together) == 1:
            results = [first.later.made()]
        else:
            results = first.later.reply(f"[{','.join(str(each.text) for each in together)}]")
    except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
        first.end(None, error)
        results = [None]
    else:
        for each, result in zip(taken, results, strict=False):
            each.end(result)
    finally:
        _making = False
        _stood_still += time.monotonic() - began
    _queue.extendleft(reversed(taken[len(results) :]))


def _when_idle(loop: asyncio.AbstractEventLoop) -> None:
    if loop not in _idle_in:
        _idle_in[:] = [loop]
        loop.call_soon(_idle, loop, 0)


def _idle(loop: Any, turns: int) -> None:
    if not _queue:
        _idle_in.clear()
    elif loop._ready and turns < _MOST_TURNS:
        loop.call_soon(_idle, loop, turns + 1)
    else:
        _make_some()
        loop.call_soon(_idle, loop, 0)


# What is put into cells


def asked(line: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What ``await f(...)`` awaits."""
    later = Later(0, line, function, *args, **kwargs)
    return later.made() if _is_alone() else Asked(later)


def task(line: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What ``create_task(f(...))`` is given."""
    return awaited(Asked(Later(0, line, function, *args, **kwargs)))


async def awaited(call: Asked) -> Any:
    return await call


def begin_asked(site: int, first: Later, *others: Callable[[], Later]) -> Any:
    """As `begin`, where each result is awaited: beside other tasks, each call for itself."""
    if _is_alone():
        return begin(site, first, *others, depth=3)
    _one_by_one[place(site)] = deque(others)
    groups.pop(place(site), None)
    return Asked(first)


def taken_asked(site: int) -> Any:
    """As `taken`."""
    group = groups.get(place(site))
    return group() if group is not None else Asked(_one_by_one[place(site)].popleft()())


_one_by_one: dict[tuple[int, int], deque[Callable[[], Later]]] = {}


def _is_alone() -> bool:
    """Whether no other task of the cell is there, whose calls could leave beside one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return True
    current = asyncio.current_task()
    return not _queue and not any(
        other is not current and not other.done() and _is_own(other)
        for other in asyncio.all_tasks(loop)
    )


_LIBRARY = asyncio.__file__.removesuffix("__init__.py")


def _is_own(other: asyncio.Task[Any]) -> bool:
    """Whether a task is the cell's, and not one of the kernel."""
    code = getattr(other.get_coro(), "cr_code", None)
    file = code.co_filename if isinstance(code, CodeType) else ""
    return "ipykernel_" in file or file.startswith(_LIBRARY) or code is awaited.__code__
