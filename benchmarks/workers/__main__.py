"""How much load a core, a second worker and a GiB can serve: `make bench-workers`. Writes results.md.

How this is measured, in three minutes:

* Emulated tool calls, with programs stored in SQLite, against one worker and two, in alternating rounds of
  3 s.
  Clients are wrk and the upstream is nginx if both are installed (Debian: `apt-get install wrk nginx-light`).
* Slow streams, short and long ones: the CPU of a stream's start and of a chunk is a fit through these few
  points. Two runs on the same idle machine gave 2.7 and 0.16 ms, and 6.4 and 0.04 ms.
* Kernels with numpy, pandas and matplotlib loaded, started one after another: the memory of one more.

The model adds these costs up for 10, 100 and 1,000 times a small load and names the limits that the load
exceeds. The ratio of two workers to one needs two cores without other work. Measured by hand: one worker
uses 1.17 cores, because system calls and sandboxes run outside the interpreter, so two workers on two cores
could reach at most 1.7 times its calls if a call cost the same. It costs less, because each worker stays on
its own core. SQLite takes 2,500 to 3,300 values per second from two processes, and a call holds its write
lock for 0.08 ms in the median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

from benchmarks.load import servers, slow_streams
from benchmarks.report import RESULTS, write_section
from benchmarks.workers import load, model, rounds

SHORT = slow_streams.Pace(chunks=6, apart=0.5, spread=2.0)
LONG = slow_streams.Pace(chunks=20, apart=0.5, spread=2.0)
STREAMS = 200
KERNELS = 4
IMPORTS = "import numpy, pandas, matplotlib.pyplot"


def measure_streams() -> tuple[float, float, float]:
    """Milliseconds of CPU of the start of a stream and of a chunk; KiB of an open stream."""
    slow_streams.allow_descriptors()
    with servers.upstream() as base_url, servers.proxy(base_url) as server:
        time.sleep(4)
        slow_streams.hold(server, 20, SHORT)
        few, many = (slow_streams.hold(server, STREAMS, pace) for pace in (SHORT, LONG))
    begin, chunk = model.fitted((SHORT.chunks, few.cpu), (LONG.chunks, many.cpu))
    return begin, chunk, few.memory


def measure_kernels(base_url: str) -> float | None:
    """MiB of each further kernel, with the usual libraries loaded; None without a sandbox."""
    with servers.proxy(base_url) as server:
        counts, sizes = [], []
        for count in range(1, KERNELS + 1):
            try:
                container = _post(f"{server.base_url}/containers", {"name": f"c{count}"})
                url = f"{server.base_url}/containers/{container['id']}/execute"
                _post(url, {"code": IMPORTS})
            except urllib.error.HTTPError as error:
                print(f"no kernels: {error.read().decode(errors='replace')[:300]}")
                return None
            counts.append(count)
            sizes.append(server.memory())
    return statistics.linear_regression(counts, sizes).slope


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        reply: dict[str, Any] = json.loads(answer.read())
        return reply


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-workers", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--no-write", action="store_true", help="do not write results.md")
    options = parser.parse_args()
    began, busy = datetime.now(UTC), os.getloadavg()[0]
    if not load.light():
        print(
            "wrk and nginx are not installed (Debian: apt-get install wrk nginx-light).", flush=True
        )
    with load.upstream() as upstream:
        one, two = (rounds.memory(upstream.base_url, workers) for workers in rounds.WORKERS)
        found = rounds.rounds(upstream, options.rounds, options.seconds, options.connections)
        kernel = measure_kernels(upstream.base_url)
    begin, chunk, stream = measure_streams()
    call = statistics.median(round_.proxy for round_ in found[1])
    costs = model.Costs(call, begin, chunk, stream, one, two - one, kernel)
    processors = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        (
            f"Measured by `make bench-workers` on {began:%Y-%m-%d} ({processors} CPUs, {memory:.0f} GiB, "
            f"{platform.system()}, Python {platform.python_version()}; load average {busy:.0f} at the "
            f"start), {options.connections} connections, {load.name()}:"
        ),
        "",
        *rounds.table(found, options.seconds),
        f"| memory without traffic, MiB | {one:.0f} | {two:.0f} | |",
        "",
        *_cost_table(costs),
        "",
        (
            f"A load of {model.SMALL.requests:g} calls per second, {model.SMALL.streams} open streams of "
            f"{model.CHUNKS_A_SECOND:g} chunks per second and {model.SMALL.kernels} kernels, "
            "and multiples of it:"
        ),
        "",
        *model.table(costs, processors, memory),
    ]
    print(*lines, sep="\n")
    if not options.no_write:
        write_section(RESULTS, "capacity", "\n".join(lines))


def _cost_table(costs: model.Costs) -> list[str]:
    streams = 1000 / costs.chunk / model.CHUNKS_A_SECOND
    kernel = "not measured: no sandbox here" if costs.kernel is None else f"{costs.kernel:.0f} MiB"
    rows = (
        ("an emulated call", f"{costs.request:.1f} ms of CPU", 1000 / costs.request, "per second"),
        (
            "the start of a stream",
            f"{costs.begin:.1f} ms of CPU",
            1000 / (costs.begin or 1),
            "per second",
        ),
        ("a chunk of a stream", f"{costs.chunk:.2f} ms of CPU", 1000 / costs.chunk, "per second"),
        (
            f"a stream of {model.CHUNKS_A_SECOND:g} chunks per second",
            "",
            streams,
            "at the same time",
        ),
    )
    memory = (
        ("an open stream", f"{costs.stream:.0f} KiB", 2**20 / max(costs.stream, 1)),
        ("a container's kernel", kernel, 1024 / (costs.kernel or 1024)),
    )
    return [
        "| what | costs | capacity |",
        "|---|---|---|",
        *(
            f"| {name} | {cost} | {count:,.0f} {when} per core |"
            for name, cost, count, when in rows
        ),
        *(f"| {name} | {cost} | {count:,.0f} per GiB |" for name, cost, count in memory),
    ]


if __name__ == "__main__":
    main()
