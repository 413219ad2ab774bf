"""What the proxy adds to a request: `make bench`, or `python -m benchmarks.load`. Writes results.md.

How this is measured:

* Four servers run in front of one scripted upstream on loopback: the proxy; a bare pass-through (Flask
  and urllib3 under the same gunicorn) that does not look at the bytes; the same pass-through decoding and
  re-encoding each event (*reparsed*); and LiteLLM's proxy if it is installed (`make bench` installs it).
* The servers take turns within each round, so other work on the machine affects all of them alike.
* CPU is the kernel's count for all processes of a server, not elapsed time. Ratios between servers are
  therefore more reliable than milliseconds, and rates hold only on an idle machine: the page states the
  load average.
* The growth table shows the cheapest of several rounds, because other work can only add CPU. The exponent
  is the k of the best fit of a + b * n**k, so a large constant cost does not hide one that grows.

``--smoke`` sends a few hundred requests, without LiteLLM and growth, and prints its ratios next to those
of the last full run, which are stored in this folder. It takes less than 40 s and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from os import cpu_count, getloadavg
from pathlib import Path

from benchmarks.load import cases, requests, servers, slow_streams
from benchmarks.load.client import Load
from benchmarks.load.measure import (
    Figures,
    Target,
    compare,
    exponent,
    first_chunk_added,
    grows,
)
from benchmarks.report import RESULTS, write_section

CALLS = (5, 20, 60, 120)
SERVERS = ("bare", "reparsed", "proxy", "litellm")
RATIOS = (
    ("plain, a reply of 1 chunk", "reparsed", 2.2),
    ("streamed, 50 chunks 1 ms apart", "reparsed", 1.5),
    ("emulated call, plain", "reparsed", 2.5),
    ("emulated call, streamed", "reparsed", 2.2),
)
"""Case, the server compared with, and the most CPU that the proxy may use as a multiple of that server's."""
_STORED = Path(__file__).with_name("ratios.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="less than 40 s; writes nothing")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--streams", type=int, default=1000, help="slow streams to hold")
    parser.add_argument("--no-write", action="store_true", help="leave results.md alone")
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="CHECKOUT",
        help="compare with the proxy of another checkout of this project; writes nothing",
    )
    options = parser.parse_args()
    if options.smoke:
        smoke()
        return
    if options.baseline:
        compare_checkouts(options.baseline.resolve(), options.rounds)
        return
    began = datetime.now(UTC)
    load = getloadavg()[0]
    with ExitStack() as running:
        base_url = running.enter_context(servers.upstream())
        targets = start(running, base_url, with_litellm=servers.LITELLM.exists())
        idle = {name: (t.server.memory(), t.server.ready_seconds) for name, t in targets.items()}
        found = {}
        for case in (*cases.PASSED, *cases.EMULATED):
            found[case.name] = compare(case, targets, options.rounds)
            print(compared(case.name, found[case.name]), flush=True)
        stream = requests.chat("say-200-4-1", stream=True)
        direct = Load(base_url)
        added = first_chunk_added(stream, direct, targets, 12 * options.rounds)
        print("first chunk added, ms:", added, flush=True)
        grown = []
        rounds = max(3, options.rounds // 2)
        for growth in cases.GROWTH:
            grown.append((growth, grows(growth, targets["proxy"], rounds)))
            print(grown_row(*grown[-1]), flush=True)
        replays = replayed(targets["proxy"], CALLS, rounds)
        print("replays:", replays, flush=True)
        for target in targets.values():
            target.load.close()
    starts = [ready(base_url=base_url) for _ in range(3)]
    streams = slow_streams.measure(options.streams, "--threads", str(options.streams + 24))
    print(streams.summary(), flush=True)
    ratios = {**in_ratios(found), **in_milliseconds(grown, idle)}
    page = [
        (
            f"Measured by `make bench` on {began:%Y-%m-%d} ({cpu_count()} CPUs, "
            f"{platform.system()}, Python {platform.python_version()}): {options.rounds} rounds, the "
            f"servers taking turns; load average {load:.0f} at the start."
        ),
        "",
        f"| CPU per request, ms | {' | '.join(SERVERS)} | slowest / fastest round, at most |",
        f"|---|{'---|' * len(SERVERS)}---|",
        *(compared(name, figures) for name, figures in found.items()),
        "",
        "| target | measured | |",
        "|---|---|---|",
        *verdicts(found, grown, added, idle, starts, streams),
        "",
        "| what grows | CPU per request in the cheapest round, ms | exponent |",
        "|---|---|---|",
        *(grown_row(*one) for one in grown),
        replay_row(replays),
        "",
        streams.summary(),
    ]
    if not options.no_write:
        write_section(RESULTS, "bench", "\n".join(page))
        _STORED.write_text(json.dumps(ratios, indent=1) + "\n", "utf-8")


def compare_checkouts(checkout: Path, rounds: int) -> None:
    """Print the CPU per request of this proxy and of the other checkout's; they take turns in each round."""
    with ExitStack() as running:
        base_url = running.enter_context(servers.upstream())
        started = {
            "proxy": running.enter_context(servers.proxy(base_url)),
            "baseline": running.enter_context(servers.proxy(base_url, checkout=checkout)),
        }
        targets = {
            name: Target(server, running.enter_context(closing(Load(server.base_url))))
            for name, server in started.items()
        }
        print("| case | this checkout, ms | baseline, ms | ratio of medians |\n|---|---|---|---|")
        for case in (*cases.PASSED, *cases.EMULATED):
            figures = compare(replace(case, servers=tuple(targets)), targets, rounds)
            ours, other = figures["proxy"].ms, figures["baseline"].ms
            print(f"| {case.name} | {ours:.2f} | {other:.2f} | {ours / other:.2f} |", flush=True)
        memory = {name: server.memory() for name, server in started.items()}
        print(f"| memory, MiB | {memory['proxy']:.0f} | {memory['baseline']:.0f} | |")


def start(running: ExitStack, base_url: str, *, with_litellm: bool) -> dict[str, Target]:
    proxy = running.enter_context(servers.proxy(base_url))
    bare = running.enter_context(servers.bare(base_url))
    targets = {
        "bare": Target(bare, Load(bare.base_url)),
        "reparsed": Target(bare, Load(bare.base_url.replace("/v1", "/reparsed/v1"))),
        "proxy": Target(proxy, Load(proxy.base_url)),
    }
    if with_litellm:
        litellm = running.enter_context(servers.litellm(base_url))
        targets["litellm"] = Target(litellm, Load(litellm.base_url))
    time.sleep(3)  # background work after the start is not measured
    return targets


def smoke() -> None:
    stored: dict[str, float] = json.loads(_STORED.read_text("utf-8"))
    with ExitStack() as running:
        base_url = running.enter_context(servers.upstream())
        targets = start(running, base_url, with_litellm=False)
        found = {case.name: compare(case, targets, 3) for case in (*cases.PASSED, *cases.EMULATED)}
    for name, ratio in in_ratios(found).items():
        print(f"{name}: {ratio:.2f} (stored: {stored.get(name, 'none')})")


def ready(base_url: str) -> float:
    """Seconds from the start of a process until it answers."""
    with servers.proxy(base_url) as server:
        return server.ready_seconds


def replayed(target: Target, counts: Sequence[int], rounds: int) -> dict[int, float]:
    """Milliseconds of CPU of a whole conversation whose program makes ``count`` dependent calls:

    the cheapest round.
    """
    found = dict.fromkeys(counts, math.inf)
    for _ in range(rounds):
        for count in counts:
            before = target.server.cpu()
            turns = requests.converse(lambda body: target.load.run([body], 1)[0].body, count)
            assert turns == count + 1, f"{turns} requests for {count} calls"
            found[count] = min(found[count], 1000 * (target.server.cpu() - before))
    return found


def replay_row(found: Mapping[int, float]) -> str:
    counts, costs = list(found), list(found.values())
    listed = ", ".join(f"{count} calls: {cost:.0f}" for count, cost in found.items())
    power = exponent(counts, costs)
    shown = "-" if power is None else f"{power:.1f}"
    return f"| a whole conversation of dependent calls | {listed} | {shown} |"


def grown_row(growth: cases.Growth, figures: Sequence[Figures]) -> str:
    costs = [figure.least for figure in figures]
    power = exponent(growth.sizes, costs)
    listed = ", ".join(
        f"{size:,}: {cost:.1f}" for size, cost in zip(growth.sizes, costs, strict=True)
    )
    shown = "(negligible)" if power is None else f"{power:.1f}"
    return f"| {growth.name}, {growth.unit} | {listed} | {shown} |"


def compared(name: str, figures: Mapping[str, Figures]) -> str:
    """The row of a case: the CPU per request with each server."""
    cells = (f"{figures[server].ms:.2f}" if server in figures else "" for server in SERVERS)
    spread = max(one.spread for one in figures.values())
    return f"| {name} | {' | '.join(cells)} | {spread:.1f} |"


def in_ratios(found: Mapping[str, Mapping[str, Figures]]) -> dict[str, float]:
    """The proxy's CPU as a multiple of each other server's; emulated calls are also compared with a bare
    plain answer."""
    plain = found[cases.PASSED[0].name]["bare"].ms
    ratios = {}
    for name, figures in found.items():
        ours = figures["proxy"].ms
        others = {server: one.ms for server, one in figures.items() if server != "proxy"}
        if "bare" not in others:
            others["bare pass-through"] = plain
        for server, cost in others.items():
            ratios[f"{name} / {server}"] = round(ours / cost, 2)
    return ratios


def in_milliseconds(
    grown: Sequence[tuple[cases.Growth, Sequence[Figures]]],
    idle: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    largest = {
        f"{growth.name} x{growth.sizes[-1]}": round(figures[-1].least, 1)
        for growth, figures in grown
    }
    return largest | {f"idle MiB {name}": round(memory) for name, (memory, _) in idle.items()}


def verdicts(
    found: Mapping[str, Mapping[str, Figures]],
    grown: Sequence[tuple[cases.Growth, Sequence[Figures]]],
    added: Mapping[str, float],
    idle: Mapping[str, tuple[float, float]],
    starts: Sequence[float],
    streams: slow_streams.Measurement,
) -> list[str]:
    """A row for each target: the limit, the measured value, and whether it is met."""
    rows: list[tuple[str, float, float, str]] = []
    for name, other, most in RATIOS:
        if other in found[name]:
            ratio = found[name]["proxy"].ms / found[name][other].ms
            rows.append((f"CPU: {name} / {other}", ratio, most, "x"))
    if "litellm" in idle:
        memory = idle["proxy"][0] / idle["litellm"][0]
        rows.append(("idle memory / LiteLLM", memory, 0.4, "x"))
    costs = {growth.name: (growth.sizes, figures) for growth, figures in grown}
    _, histories = costs["history, emulated call"]
    rows.append(("CPU: 1,600 messages of history, emulated call", histories[-1].least, 25, "ms"))
    for name, size, most in (
        ("history, passed through", 400, 10.0),
        ("history, emulated call", 400, 10.0),
        ("tools, seen before", 200, 5.0),
    ):
        what = name.replace("history", "messages of history").replace("tools, ", "tools ")
        rows.append((f"CPU added by {size} {what}", _between(size, *costs[name]), most, "ms"))
    rows.append(("added time to first chunk, p50", added["proxy"], 2.0, "ms"))
    rows.append(("time from start to ready", statistics.median(starts), 2.0, "s"))
    late = f"delay of the first chunk with {streams.count} slow streams"
    rows.append((f"{late}, p99", 1000 * streams.late_most, 15, "ms"))
    return [
        f"| {name} <= {most:g} {unit} | {value:.2f} {unit} | {'met' if value <= most else 'missed'} |"
        for name, value, most, unit in rows
    ]


def _between(size: int, sizes: Sequence[int], figures: Sequence[Figures]) -> float:
    """CPU that ``size`` adds over the smallest size, interpolated between the two nearest measured sizes."""
    for (low, below), (high, above) in pairwise(zip(sizes, figures, strict=True)):
        if low <= size <= high:
            share = (size - low) / (high - low)
            return below.least + share * (above.least - below.least) - figures[0].least
    raise ValueError(size)


if __name__ == "__main__":
    main()
