"""What a core, a second worker and a GiB hold: `make bench-workers`. Writes docs/scaling.md.

Emulated tool calls, programs kept in SQLite, with one worker and with two, in turns; slow streams, whose
CPU is split between their begin and their chunks; kernels, whose memory is that of one more. The model that
comes of it says what 10, 100 and 1,000 times a small load take, and what gives way first.
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
from pathlib import Path
from typing import Any

from benchmarks.load import servers, slow_streams
from benchmarks.report import write_section
from benchmarks.workers import load, model, rounds

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
SHORT = slow_streams.Pace(chunks=6, apart=0.5, spread=2.0)
LONG = slow_streams.Pace(chunks=20, apart=0.5, spread=2.0)
STREAMS = 200
KERNELS = 4
IMPORTS = "import numpy, pandas, matplotlib.pyplot"


def measure_streams() -> tuple[float, float, float]:
    """Milliseconds of CPU of a stream's begin and of a chunk; KiB of an open stream."""
    slow_streams.allow_descriptors()
    with servers.upstream() as base_url, servers.proxy(base_url) as server:
        time.sleep(4)
        slow_streams.hold(server, 20, SHORT)
        few, many = (slow_streams.hold(server, STREAMS, pace) for pace in (SHORT, LONG))
    begin, chunk = model.fitted((SHORT.chunks, few.cpu), (LONG.chunks, many.cpu))
    return begin, chunk, few.memory


def measure_kernels(base_url: str) -> float | None:
    """MiB that each further kernel takes, with the libraries that cells use; None without a sandbox."""
    options = ("--warm-interpreters", "0", "--warm-kernels", "0")
    with servers.proxy(base_url, *options) as server:
        counts, sizes = [], []
        for count in range(1, KERNELS + 1):
            try:
                made = _post(f"{server.base_url}/containers", {"name": f"c{count}"})
                url = f"{server.base_url}/containers/{made['id']}/execute"
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
        told: dict[str, Any] = json.loads(answer.read())
        return told


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-workers", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--no-write", action="store_true", help="leave docs/scaling.md alone")
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
            f"{platform.system()}, Python {platform.python_version()}; load average {busy:.0f} when it "
            f"began), {options.connections} connections, {load.name()}:"
        ),
        "",
        *rounds.table(found, options.seconds),
        f"| memory without traffic, MiB | {one:.0f} | {two:.0f} | |",
        "",
        *_told(costs),
        "",
        (
            f"What that makes of {model.SMALL.requests:g} calls a second, {model.SMALL.streams} open streams "
            f"of {model.CHUNKS_A_SECOND:g} chunks a second and {model.SMALL.kernels} kernels, and of more:"
        ),
        "",
        *model.table(costs, processors, memory),
    ]
    print(*lines, sep="\n")
    if not options.no_write:
        write_section(PAGE, "capacity", "\n".join(lines))


def _told(costs: model.Costs) -> list[str]:
    streams = 1000 / costs.chunk / model.CHUNKS_A_SECOND
    kernel = "not measured: no sandbox here" if costs.kernel is None else f"{costs.kernel:.0f} MiB"
    rows = (
        ("an emulated call", f"{costs.request:.1f} ms of CPU", 1000 / costs.request, "a second"),
        ("a stream's begin", f"{costs.begin:.1f} ms of CPU", 1000 / (costs.begin or 1), "a second"),
        ("a stream's chunk", f"{costs.chunk:.2f} ms of CPU", 1000 / costs.chunk, "a second"),
        (f"a stream of {model.CHUNKS_A_SECOND:g} chunks a second", "", streams, "at once"),
    )
    memory = (
        ("an open stream", f"{costs.stream:.0f} KiB", 2**20 / max(costs.stream, 1)),
        ("a container's kernel", kernel, 1024 / (costs.kernel or 1024)),
    )
    return [
        "| what | costs | so many |",
        "|---|---|---|",
        *(
            f"| {name} | {cost} | {count:,.0f} {when} on a core |"
            for name, cost, count, when in rows
        ),
        *(f"| {name} | {cost} | {count:,.0f} in a GiB |" for name, cost, count in memory),
    ]


if __name__ == "__main__":
    main()
