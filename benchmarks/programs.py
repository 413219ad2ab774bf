"""What programs cost: CPU time of a run, and memory of the program server and of programs that wait.

    make bench-programs

CPU time is that of all processes: the proxy's part, the server's and the children's. The server's memory is
its proportional share (PSS).
"""

from __future__ import annotations

import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from emulator.programs.driver import Driver
from emulator.programs.program import CallRecord, Program
from emulator.programs.saved import with_result
from emulator.reading.readers import Statement
from emulator.tools.toolset import Toolset
from sandbox.engine import Limits
from sandbox.programs.server import ProgramServer

_TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in {
        "search": {"type": "object", "properties": {"to": {"type": "string"}}},
        "list_seats": {"type": "object", "properties": {"flight": {"type": "string"}}},
        "book": {"type": "object", "properties": {"seat": {"type": "string"}}},
    }.items()
]
_LITERAL = 'hits = search(to="Oslo")\nprint(hits)'
_CHAIN = """\
hits = search(to="Oslo")
cheap = min(hits, key=lambda hit: hit["price"])
seats = list_seats(flight=cheap["id"])
booked = book(seat=seats[0])
print(f"booked {booked}")"""
_RESULTS = {
    "search": '[{"id": "a", "price": 2.50}, {"id": "b", "price": 2}]',
    "list_seats": '["1a", "1b"]',
    "book": "ok",
}
_WAITING = 50
_Row = tuple[str, float, float, int]
"""What, milliseconds of CPU, milliseconds of time, runs."""


def _program(source: str) -> Program:
    return Program((Statement(source, 1),))


def play(driver: Driver, source: str) -> int:
    """Play a program to its end; the client answers the calls of each run. Returns the number of runs."""
    program = _program(source)
    recorded: list[CallRecord] = []
    runs = 0
    while True:
        runs += 1
        outcome = driver.run(program, recorded)
        if not outcome.pending:
            return runs
        recorded += [
            with_result(CallRecord(call), _RESULTS[call.name], None) for call in outcome.calls
        ]


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(what: str, step: Callable[[Driver], int], times: int) -> _Row:
    """CPU of one step, with a server of its own: the CPU of its children counts when it has ended."""
    toolset = Toolset.parse(_TOOLS)
    with closing(ProgramServer(Limits())) as server:
        server.check()
        step(Driver(server, toolset))
    idle = _cpu()
    with closing(ProgramServer(Limits())) as server:
        server.check()
    start_cost = _cpu() - idle
    before = _cpu()
    spent = []
    with closing(ProgramServer(Limits())) as server:
        server.check()
        driver = Driver(server, toolset)
        for _ in range(times):
            began = time.perf_counter()
            runs = step(driver)
            spent.append(time.perf_counter() - began)
    cpu = (_cpu() - before - start_cost) / times
    return what, cpu * 1e3, statistics.median(spent) * 1e3, runs


def _first_run(driver: Driver, source: str) -> int:
    driver.run(_program(source))
    return 1


def pss(pid: int) -> float:
    """MiB of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def memory() -> Mapping[str, float]:
    """MiB of the server, and what programs that wait add to it."""
    opening = {"recorded": [], "tools": [], "preamble": "", "seed": 1, "output": 1000}
    with closing(ProgramServer(Limits())) as server, ExitStack() as waiting:
        server.check()
        alone, before = pss(_server()), _available()
        for _ in range(_WAITING):
            child = waiting.enter_context(server.open())
            child.ask(opening, {"statements": [["x = [n for n in range(1000)]", 1]]})
            assert child.rest()
        # A child hides its memory from its own user: what the machine has less is theirs.
        return {"server": alone, f"{_WAITING} waiting programs": before - _available()}


def _available() -> float:
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s+(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _server() -> int:
    """The pid of the only child process."""
    tasks = Path("/proc/self/task").iterdir()
    [pid] = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return int(pid)


def main() -> None:
    rows = [
        measured("a literal call, printed", lambda driver: _first_run(driver, _LITERAL), 400),
        measured("the first run of a program", lambda driver: _first_run(driver, _CHAIN), 100),
        measured("a program of three dependent calls", lambda driver: play(driver, _CHAIN), 50),
    ]
    print("| what | runs | CPU, ms | time, ms |\n|---|--:|--:|--:|")
    for what, cpu, spent, runs in rows:
        print(f"| {what} | {runs} | {cpu:.2f} | {spent:.2f} |")
    for what, size in memory().items():
        print(f"{what}: {size:.0f} MiB")


if __name__ == "__main__":
    main()
