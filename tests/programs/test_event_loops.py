"""Programs whose coroutines run at the same time, against CPython with real coroutines as tools.

CPython runs the program after us, and gets each result when our client sent it. So the calls of each message
must be calls that CPython waits for at that moment, and both must print the same.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from emulator.programs.driver import Driver
from emulator.programs.program import CallRecord, Program, ProgramRejected
from emulator.programs.saved import with_result
from emulator.reading.readers import READERS
from emulator.reading.tool_names import cached_tool_names
from emulator.tools.toolset import Toolset
from sandbox.programs.server import ProgramServer
from tests.support.random_programs import ANY
from tests.support.tools import function


def random_program(chance: random.Random) -> str:
    """A program of two or three coroutines. It always ends."""
    count = chance.randint(2, 3)
    lines = ["import asyncio", "event = asyncio.Event()", "queue = asyncio.Queue()"]
    lines += ["one_at_a_time = asyncio.Semaphore(1)", "seen = []"]
    for number in range(count):
        lines.append(f"async def job{number}(x):")
        lines += [f"    {line}" for line in _body(chance, number, count)]
    lines.append("async def main():")
    lines += [f"    {line}" for line in _main(chance, count)]
    return "\n".join([*lines, "asyncio.run(main())"])


def _body(chance: random.Random, number: int, count: int) -> list[str]:
    lines = ["t = x"]
    for _ in range(chance.randint(1, 2)):
        lines += chance.choice(
            [
                ["t = (await get_weather(t))['temp']"],
                ["await append_log(t)"],
                ["seen.append(x)", "await append_log(len(seen))"],
                ["if (await get_time(t))['temp'] > 1:", "    await run_command(x)"],
            ]
        )
    last = number == count - 1
    # The last coroutine makes what the others wait for.
    lines += chance.choice(
        [
            ["event.set()" if last else "await event.wait()"],
            [f"for _ in range({count}):", "    queue.put_nowait(t)"]
            if last
            else ["t = await queue.get()"],
            ["async with one_at_a_time:", "    await append_log(x)", "    await get_time(t)"],
            [],
        ]
    )
    if last:
        lines += ["event.set()", f"for _ in range({count}):", "    queue.put_nowait(t)"]
    return [*lines, "await append_log((x, t))", "return t"]


def _main(chance: random.Random, count: int) -> list[str]:
    jobs = [f"job{number}({'ab' * (number + 1)!r})" for number in range(count)]
    gather = [f"print(await asyncio.gather({', '.join(jobs)}))"]
    tasks = [f"t{number} = asyncio.create_task({job})" for number, job in enumerate(jobs)]
    awaits = [f"print(await t{number})" for number in range(count)]
    group = ["async with asyncio.TaskGroup() as group:"]
    group += [f"    group.create_task({job})" for job in jobs]
    completed = [
        f"for each in asyncio.as_completed([{', '.join(jobs)}]):",
        "    await append_log(await each)",
    ]
    failures = [f"print(await asyncio.gather({', '.join(jobs)}, return_exceptions=True))"]
    return [
        *chance.choice([gather, [*tasks, *awaits], group, completed, failures]),
        "await append_log('end')",
    ]


TOOLS = ("get_weather", "get_time", "append_log", "run_command")
TOOLSET = Toolset.parse([function(name, ANY) for name in TOOLS])
ONE = "async def one(c):\n    w = await get_weather(c)\n    return w['temp']\n"
LOG = "async def log(c):\n    t = await one(c)\n    await append_log(t)\n    return t\n"

ONE_MESSAGE = {
    "gather of a list": "print(await asyncio.gather(*[one(c) for c in 'abc']))",
    "gather of a generator": "print(await asyncio.gather(*(one(c) for c in 'abc')))",
    "gather of coroutines": "print(await asyncio.gather(one('a'), one('b'), one('c')))",
    "gather of a list variable": "cs = [one(c) for c in 'abc']\nprint(await asyncio.gather(*cs))",
    "gather of a dict's coroutines": (
        "d = {c: one(c) for c in 'abc'}\nprint(dict(zip(d, await asyncio.gather(*d.values()))))"
    ),
    "a main function": (
        "async def main():\n    print(await asyncio.gather(*[one(c) for c in 'abc']))\nasyncio.run(main())"
    ),
    "tasks in a list": "ts = [asyncio.create_task(one(c)) for c in 'abc']\nprint([await t for t in ts])",
    "tasks in a dict": (
        "ts = {c: asyncio.create_task(one(c)) for c in 'abc'}\nprint({c: await t for c, t in ts.items()})"
    ),
    "gather under another name": (
        "from asyncio import gather as g\nprint(await g(*[one(c) for c in 'abc']))"
    ),
    "tools in gather under another name": (
        "from asyncio import gather as g\n"
        "print(await g(*[get_weather(c) for c in 'abc'], return_exceptions=True))"
    ),
    "a group of tasks": (
        "async with asyncio.TaskGroup() as g:\n    ts = [g.create_task(one(c)) for c in 'abc']\n"
        "print([t.result() for t in ts])"
    ),
    "a semaphore with room": (
        "s = asyncio.Semaphore(5)\nasync def some(c):\n    async with s:\n        return await one(c)\n"
        "print(await asyncio.gather(*map(some, 'abc')))"
    ),
    "a time limit": (
        "async with asyncio.timeout(5):\n    print(await asyncio.gather(*[one(c) for c in 'abc']))"
    ),
    "failures as results": (
        "print(await asyncio.gather(*[one(c) for c in 'abc'], return_exceptions=True))"
    ),
}
"""Three calls of one helper, whose results it reads: one message. Before each: the helper ``one``."""

PROGRAMS = {
    "an event": (
        "e = asyncio.Event()\nasync def first():\n    await append_log(await one('a'))\n    e.set()\n"
        "async def second():\n    await e.wait()\n    await append_log('second')\n"
        "await asyncio.gather(second(), first())"
    ),
    "producers and a consumer": (
        "q = asyncio.Queue(maxsize=1)\nasync def put(c):\n    await q.put(await one(c))\n"
        "async def take():\n    for _ in range(2):\n        await append_log(await q.get())\n"
        "await asyncio.gather(take(), put('a'), put('bb'))"
    ),
    "a worker that is cancelled": (
        "q = asyncio.Queue()\nasync def worker():\n    while True:\n        c = await q.get()\n"
        "        await append_log(c)\n        q.task_done()\n"
        "async def main():\n    for c in 'ab':\n        q.put_nowait(c)\n"
        "    t = asyncio.create_task(worker())\n"
        "    await q.join()\n    t.cancel()\n    await append_log('end')\nasyncio.run(main())"
    ),
    "failures as results": (
        "async def fail(c):\n    t = await one(c)\n    if t > 1:\n        raise ValueError(c)\n    return t\n"
        "r = await asyncio.gather(fail('a'), fail('bb'), return_exceptions=True)\n"
        "for x in r:\n    await append_log(repr(x))"
    ),
    "a failure next to another coroutine": (
        "async def fail():\n    raise ValueError('x')\n"
        "try:\n    await asyncio.gather(log('a'), fail())\nexcept ValueError:\n    await append_log('failed')"
    ),
    "as they complete": (
        "for c in asyncio.as_completed([one('a'), one('bb')]):\n    await append_log(await c)"
    ),
    "the first that completes": (
        "done, rest = await asyncio.wait([asyncio.create_task(one(c)) for c in ('a', 'bb')], "
        "return_when=asyncio.FIRST_COMPLETED)\nawait append_log(len(done) > 0)"
    ),
    "a time limit that expires": (
        "async def slow():\n    await asyncio.sleep(0.01)\n    await append_log('slow')\n"
        "try:\n    await asyncio.wait_for(slow(), 0.001)\nexcept asyncio.TimeoutError:\n"
        "    await append_log('late')"
    ),
    "a time limit that does not": "await append_log(await asyncio.wait_for(one('a'), 5))",
    "one at a time": (
        "s = asyncio.Semaphore(1)\nasync def some(c):\n    async with s:\n        await log(c)\n"
        "await asyncio.gather(*(some(c) for c in ('a', 'bb')))"
    ),
    "a lock": (
        "k = asyncio.Lock()\nasync def some(c):\n    t = await one(c)\n    async with k:\n"
        "        await append_log(t)\n        await append_log(c)\n"
        "await asyncio.gather(some('a'), some('bb'))"
    ),
    "a condition": (
        "k = asyncio.Condition()\nready = []\nasync def put():\n    t = await one('a')\n    async with k:\n"
        "        ready.append(t)\n        k.notify_all()\nasync def take():\n    async with k:\n"
        "        await k.wait_for(lambda: ready)\n    await append_log(ready[0])\n"
        "await asyncio.gather(take(), put())"
    ),
    "a shield": "await append_log(await asyncio.shield(one('a')))",
    "a loop of its own": (
        "loop = asyncio.new_event_loop()\nprint(loop.run_until_complete(log('a')))\nloop.close()"
    ),
    "an async generator": (
        "async def each():\n    for c in 'ab':\n        yield await one(c)\n"
        "async for t in each():\n    await append_log(t)\nprint([t async for t in each()])"
    ),
    "a context manager": (
        "class Door:\n    async def __aenter__(self):\n        return await one('a')\n"
        "    async def __aexit__(self, *_):\n        await append_log('shut')\n"
        "async with Door() as t:\n    await append_log(t)"
    ),
    "a task that starts later": (
        "async def main():\n    t = asyncio.create_task(get_weather('a'))\n    await append_log('b')\n"
        "    await t\nasyncio.run(main())"
    ),
    "a task that nobody awaits": (
        "async def main():\n    asyncio.create_task(log('a'))\n    await append_log('b')\nasyncio.run(main())"
    ),
    "branches": (
        "async def some(c):\n    t = await one(c)\n    if t > 1:\n        await run_command(c)\n"
        "    return t\n"
        "print(await asyncio.gather(*[some(c) for c in ('a', 'bb', 'ccc')]))\nawait append_log('end')"
    ),
    "one after the other": "for c in 'ab':\n    await log(c)\nprint(await one('c'))",
    "two helpers": "print(await asyncio.gather(log('a'), log('bb')))",
}


def result(x: Any) -> dict[str, int]:
    return {"temp": len(str(x))}


class CPython:
    """Runs a program in CPython. Its tools are coroutines, whose results come in the order of `messages`."""

    def __init__(self, messages: list[list[Any]]) -> None:
        self._messages = [[(name, json.dumps(x)) for name, x in each] for each in messages]
        self._waiting: list[tuple[tuple[str, str], Any, asyncio.Future[Any]]] = []
        self._replies: dict[Any, asyncio.Task[None]] = {}
        self.printed = ""

    def run(self, source: str) -> None:
        """Raises AssertionError if CPython does not wait for the calls of the next message."""
        names: dict[str, Any] = {name: partial(self._call, name) for name in TOOLS}
        names["asyncio"] = asyncio
        out = io.StringIO()
        code = compile(source, "program", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            waits = eval(code, names)
            if waits is not None:
                asyncio.run(waits)
        self.printed = out.getvalue()
        unanswered = Counter(
            call for call, _, _ in self._waiting
        )  # a task that nobody awaits made them
        assert sum(map(Counter, self._messages), Counter()) <= unanswered, (
            "calls that CPython does not make"
        )
        assert all(future.cancelled() for _, _, future in self._waiting), "calls are missing"

    async def _call(self, name: str, x: Any) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._replies:
            self._replies[loop] = loop.create_task(self._reply())
        self._waiting.append(((name, json.dumps(x)), x, future := loop.create_future()))
        return await future

    async def _reply(self) -> None:
        for _ in range(100):
            for _ in range(50):  # until all coroutines wait
                await asyncio.sleep(0)
            waiting = [call for call, _, _ in self._waiting]
            if not self._messages or not Counter(self._messages[0]) <= Counter(waiting):
                await asyncio.sleep(0.002)  # a timer may expire
                continue
            for call in self._messages.pop(0):
                _, x, future = self._waiting.pop([one for one, _, _ in self._waiting].index(call))
                future.set_result(result(x))
        for _, x, future in self._waiting:  # let the program end
            future.set_result(result(x))


def messages(
    programs: ProgramServer, source: str, order: Any = "auto"
) -> tuple[list[list[Any]], str]:
    """The calls of each message, and what is printed at the end."""
    reader = READERS["python"](cached_tool_names(TOOLSET.spellings))
    program = Program((*reader.feed(source + "\n"), *reader.close()))
    driver = Driver(programs, TOOLSET, order=order)
    recorded: list[CallRecord] = []
    sent: list[list[Any]] = []
    while True:
        outcome = driver.run(program, recorded, seed=1_700_000_000_000_000)
        if outcome.calls:
            sent.append([(call.name, call.arguments["x"]) for call in outcome.calls])
        if not outcome.pending:
            return sent, outcome.stdout
        assert outcome.calls
        recorded += [
            with_result(CallRecord(call), json.dumps(result(call.arguments["x"])))
            for call in outcome.calls
        ]


def check_against_cpython(programs: ProgramServer, source: str) -> None:
    sent, printed = messages(programs, source)
    (python := CPython(sent)).run(source)
    assert printed == python.printed, source


@pytest.mark.parametrize("case", ONE_MESSAGE)
def test_a_helper_for_three_cities_is_one_message(programs: ProgramServer, case: str) -> None:
    source = f"import asyncio\n{ONE}{ONE_MESSAGE[case]}"
    sent, printed = messages(programs, source)
    assert sent == [[("get_weather", c) for c in "abc"]]
    (python := CPython(sent)).run(source)
    assert printed == python.printed


@pytest.mark.parametrize("case", PROGRAMS)
def test_calls_are_those_of_cpython(programs: ProgramServer, case: str) -> None:
    check_against_cpython(programs, f"import asyncio\n{ONE}{LOG}{PROGRAMS[case]}")


@pytest.mark.parametrize("seed", range(40))
def test_random_coroutines_behave_as_in_cpython(programs: ProgramServer, seed: int) -> None:
    check_against_cpython(programs, random_program(random.Random(seed)))


def test_coroutines_that_wait_for_each_other_are_refused_with_the_reason(
    programs: ProgramServer,
) -> None:
    source = "import asyncio\nget_weather('a')\nawait asyncio.Event().wait()"
    with pytest.raises(ProgramRejected, match="every coroutine waits for something"):
        messages(programs, source)


def test_a_call_that_is_not_awaited_has_its_result_immediately(programs: ProgramServer) -> None:
    source = (
        "import asyncio\nasync def some(c):\n    w = get_weather(c)\n    return w['temp']\n"
        "print(await asyncio.gather(some('a'), some('bb')))"
    )
    assert messages(programs, source) == (
        [[("get_weather", "a")], [("get_weather", "bb")]],
        "[1, 2]\n",
    )


def test_a_sleep_takes_no_time(programs: ProgramServer) -> None:
    source = (
        "import asyncio\nfor x in 'ab':\n    await asyncio.sleep(3600)\n    await append_log(x)"
    )
    assert messages(programs, source)[0] == [[("append_log", "a")], [("append_log", "b")]]
