"""Compare HTTP servers for the proxy: `make bench-fronts`, or `python -m benchmarks.fronts`.

The same small pass-through (`benchmarks.load.bare`) runs under servers that use a thread for each stream,
and an asyncio version of it under servers that use a task, in front of one scripted upstream. All servers
run at the same time and take turns: first short requests, for CPU and requests per second, then 1,000 slow
streams each. It takes about 3 minutes and writes the table in README.md in this folder.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from os import cpu_count, getloadavg
from pathlib import Path

from benchmarks.fronts.fronts import FRONTS
from benchmarks.load import requests, servers, slow_streams
from benchmarks.load.cases import Case, same
from benchmarks.load.client import Load
from benchmarks.load.measure import Figures, Target, one_round
from benchmarks.report import write_section

PAGE = Path(__file__).with_name("README.md")
PACE = slow_streams.Pace(chunks=7, apart=1.0, spread=5.0)
HEADS = (
    "server", "app", "an open stream uses", "CPU per plain request, ms", "requests/s", "CPU per stream, ms",
    "memory per stream, KiB", "total memory, MiB", "threads", "first chunk late, p50 / p99, ms", "completed",
)  # fmt: skip
PLAIN = Case("plain", same(requests.chat("say-200-200")), at_once=8, count=200)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-fronts", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of short requests")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--no-write", action="store_true", help="do not write README.md")
    options = parser.parse_args()
    began, load = datetime.now(UTC), getloadavg()[0]
    slow_streams.allow_descriptors()
    with ExitStack() as running:
        base_url = running.enter_context(servers.upstream())
        environment = {"BARE_UPSTREAM": base_url, "THREADS": str(servers.THREADS)}
        environment["PYTHONPATH"] = str(servers.ROOT)
        targets = {}
        for front in FRONTS:
            server = running.enter_context(servers.started(front.name, front.command, environment))
            targets[front.name] = Target(server, Load(server.base_url))
            targets[front.name].load.run(PLAIN.bodies(16), PLAIN.at_once)
        plain = {name: Figures() for name in targets}
        for _ in range(options.rounds):
            for name, target in targets.items():
                one_round(PLAIN, target, plain[name])
        streams = {}
        for name, target in targets.items():
            target.load.close()
            streams[name] = slow_streams.hold(target.server, options.streams, PACE)
            print(f"{name}: {streams[name].summary()}", flush=True)
    lines = table(plain, streams)
    print(*lines, sep="\n")
    if not options.no_write:
        about = (
            f"Measured by `make bench-fronts` on {began:%Y-%m-%d} ({cpu_count()} CPUs), load average "
            f"{load:.0f} when it began. {options.streams} streams of {PACE.chunks} chunks "
            f"{PACE.apart:g} s apart, started within {PACE.spread:g} s, one process and "
            f"{servers.THREADS} threads each; in brackets: multiples of the first row."
        )
        write_section(PAGE, "fronts", "\n".join([about, "", *lines]))


def table(
    plain: Mapping[str, Figures], slow: Mapping[str, slow_streams.Measurement]
) -> Sequence[str]:
    rows = [
        "| " + " | ".join(HEADS) + " |",
        "|" + len(HEADS) * "---|",
    ]
    base, base_streams = plain[FRONTS[0].name], slow[FRONTS[0].name]
    for front in FRONTS:
        figures, streams = plain[front.name], slow[front.name]
        rate, base_rate = statistics.median(figures.rate), statistics.median(base.rate)
        rows.append(
            f"| {front.name} | {front.app} | {front.carrier} "
            f"| {figures.ms:.2f} ({figures.ms / base.ms:.1f}) | {rate:.0f} ({rate / base_rate:.1f}) "
            f"| {streams.cpu:.1f} ({streams.cpu / base_streams.cpu:.1f}) "
            f"| {streams.memory:.0f} ({streams.memory / base_streams.memory:.1f}) "
            f"| {streams.total:.0f} ({streams.total / base_streams.total:.1f}) | {streams.threads} "
            f"| {_ms(streams.late_median)} / {_ms(streams.late_most)} | {streams.completed} |"
        )
    return rows


def _ms(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{1000 * seconds:.0f}"


if __name__ == "__main__":
    main()
