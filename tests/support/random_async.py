"""Random programs with several coroutines: they read, write, branch, and wait for each other."""

from __future__ import annotations

import random


def random_program(chance: random.Random, *, only_gather: bool = False) -> str:
    """A program of two or three coroutines. It always ends."""
    count = chance.randint(2, 3)
    lines = ["import asyncio", "event = asyncio.Event()", "queue = asyncio.Queue()"]
    lines += ["one_at_a_time = asyncio.Semaphore(1)", "seen = []"]
    if only_gather:
        lines = ["import asyncio", "seen = []"]
    for number in range(count):
        lines.append(f"async def job{number}(x):")
        lines += [f"    {line}" for line in _body(chance, number, count, only_gather)]
    lines.append("async def main():")
    lines += [f"    {line}" for line in _main(chance, count, only_gather)]
    return "\n".join([*lines, "asyncio.run(main())"])


def _body(chance: random.Random, number: int, count: int, only_gather: bool) -> list[str]:
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
    if not only_gather:
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


def _main(chance: random.Random, count: int, only_gather: bool) -> list[str]:
    jobs = [f"job{number}({'ab' * (number + 1)!r})" for number in range(count)]
    gather = [f"print(await asyncio.gather({', '.join(jobs)}))"]
    tasks = [f"t{number} = asyncio.create_task({job})" for number, job in enumerate(jobs)]
    awaits = [f"print(await t{number})" for number in range(count)]
    group = ["async with asyncio.TaskGroup() as group:"]
    group += [f"    group.create_task({job})" for job in jobs]
    if only_gather:
        return [*gather, "await append_log('end')"]
    completed = [
        f"for each in asyncio.as_completed([{', '.join(jobs)}]):",
        "    await append_log(await each)",
    ]
    failures = [f"print(await asyncio.gather({', '.join(jobs)}, return_exceptions=True))"]
    return [
        *chance.choice([gather, [*tasks, *awaits], group, completed, failures]),
        "await append_log('end')",
    ]
