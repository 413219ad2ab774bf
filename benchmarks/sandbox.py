"""How long the sandbox makes a program wait: `python -m benchmarks.sandbox [--rounds 50]`.

Measured in this process, without HTTP: from the request for a session until it is there (warm: from
the pool; cold: a kernel started for it), and a trivial piece from `start` until its value is there.
Kernels are replaced between rounds, outside the time that is measured, as they are between requests
that come slower than kernels start.

Then over HTTP, against `python app.py`: a trivial cell in a container that has run one, and a new
container with its first cell, its kernel waiting with numpy, pandas and matplotlib imported, or started
for it.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx2

from sandbox import cgroups, fences
from sandbox.engine import Engine, Finished, Paused
from sandbox.kernel import KernelEngine
from sandbox.monty import MontyEngine
from tests.support.processes import proxy

PIECE = "sum(range(10))"
VALUE = Finished("", 45, "45")
CALL = "ask(6, by=7)"

TARGETS = {  # milliseconds, issue 5
    "kernel: warm hand-out": 5.0,
    "kernel: trivial piece": 8.0,
    "monty: whole program with a call": 1.5,
}

RATIOS = (
    ("kernel: cold start and one piece", "kernel: warm hand-out"),
    ("notebook: trivial cell", "kernel: second piece"),
    ("notebook: new container and cell, cold", "notebook: new container and cell, warm"),
)
"""What is slower, what is faster: how many times says more of the code than of the machine."""


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )  # fmt: skip
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    groups = "with" if isinstance(cgroups.find(), cgroups.Roots) else "without"
    return (
        f"{os.cpu_count()} x {model}, {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, uid {os.geteuid()}, {groups} control groups, "
        f"load {os.getloadavg()[0]:.1f}"
    )


Times = dict[str, list[float]]
T = TypeVar("T")


def _timed(times: Times, what: str, act: Callable[[], T]) -> T:
    began = time.perf_counter()
    result = act()
    times.setdefault(what, []).append(1000 * (time.perf_counter() - began))
    return result


def measure_kernel(rounds: int, pause: float) -> Times:
    times: Times = {}
    with KernelEngine(warm=3) as engine:
        engine.warm_up()
        time.sleep(4)
        for _ in range(rounds):
            with ExitStack() as leaving:
                opening = partial(leaving.enter_context, engine.session(frozenset({"ask"})))
                session = _timed(times, "kernel: warm hand-out", opening)
                step = _timed(times, "kernel: trivial piece", partial(session.start, PIECE))
                assert step == VALUE
                _timed(times, "kernel: second piece", partial(session.start, PIECE))
                _timed(times, "kernel: to the first call", partial(session.start, CALL))
            time.sleep(pause)
    with KernelEngine(warm=0) as engine:
        _one(engine)
        for _ in range(max(3, rounds // 10)):
            _timed(times, "kernel: cold start and one piece", partial(_one, engine))
    return times


def _one(engine: Engine) -> None:
    with engine.session(frozenset()) as session:
        assert session.start(PIECE) == VALUE


def measure_monty(rounds: int) -> Times:
    times: Times = {}
    with MontyEngine() as engine:
        _one(engine)
        for _ in range(10 * rounds):
            _timed(times, "monty: whole program", partial(_one, engine))
            _timed(times, "monty: whole program with a call", partial(_calling, engine))
    return times


def _calling(engine: Engine) -> None:
    with engine.session(frozenset({"ask"})) as session:
        assert session.start(CALL) == Paused("ask", (6,), {"by": 7}, 1)
        assert session.resume(42) == Finished("", 42, "42")


def measure_notebooks(rounds: int, pause: float) -> Times:
    times: Times = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with _notebooks(log, warm=2) as http:
            _new_cell(http)  # opens the interpreter's engine
            for _ in range(rounds):
                time.sleep(pause)
                new = partial(_new_cell, http)
                place = _timed(times, "notebook: new container and cell, warm", new)
                _timed(times, "notebook: trivial cell", partial(_cell, http, place))
                http.delete(place)
        with _notebooks(log, warm=0) as http:
            _new_cell(http)
            for _ in range(max(3, rounds // 10)):
                _timed(times, "notebook: new container and cell, cold", partial(_new_cell, http))
    return times


@contextmanager
def _notebooks(log: Path, *, warm: int) -> Iterator[httpx2.Client]:
    nobody = "http://127.0.0.1:9/v1"  # a cell that is run by hand asks no model
    options = ("--warm-interpreters", str(warm), "--store", ":memory:")
    with (
        proxy(nobody, log, *options) as (_, url),
        httpx2.Client(base_url=f"{url}/v1", timeout=60) as http,
    ):
        yield http


def _new_cell(http: httpx2.Client) -> str:
    place = f"/containers/{http.post('/containers', json={'name': 'new'}).json()['id']}"
    _cell(http, place)
    return place


def _cell(http: httpx2.Client, place: str) -> None:
    answer = http.post(f"{place}/execute", json={"code": PIECE}).json()
    assert answer["result"] == VALUE.text, answer


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--pause", type=float, default=1.0, help="seconds between rounds")
    given = arguments.parse_args()
    print(machine(), end="\n\n")
    times = measure_monty(given.rounds)
    if (problem := fences.problem()) is None:
        times |= measure_kernel(given.rounds, given.pause)
        times |= measure_notebooks(given.rounds, 3 * given.pause)
    else:
        print(f"no kernels here: {problem}\n")
    print("| ms | p50 | p95 | least | n | wanted p50 |\n|---|---|---|---|---|---|")
    for what, taken in times.items():
        last = statistics.quantiles(taken, n=20)[-1]
        wanted = f"{TARGETS[what]:g}" if what in TARGETS else ""
        print(
            f"| {what} | {statistics.median(taken):.2f} | {last:.2f} | {min(taken):.2f} "
            f"| {len(taken)} | {wanted} |"
        )
    print()
    for slow, fast in RATIOS:
        if {slow, fast} <= times.keys():
            ratio = statistics.median(times[slow]) / statistics.median(times[fast])
            print(f"{slow}: {ratio:.1f} x {fast}")


if __name__ == "__main__":
    main()
