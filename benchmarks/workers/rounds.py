"""Calls with one worker and with two, taking turns: calls per second, and which process used the CPU.

Both proxies run all the time, so the rounds of a pair are seconds apart and other work affects both alike.
They are restarted now and then, because a process may be a few percent faster or slower for its whole life.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load import servers
from benchmarks.workers import load

STARTS = 2
WORKERS = (1, 2)
_SETTLE_SECONDS = 4.0
"""Background work after the start is not measured."""
_START_SECONDS = 30.0
"""A busy machine takes long to start all workers."""


@dataclass(frozen=True)
class Round:
    rate: float
    """Calls a second."""
    proxy: float
    """Milliseconds of CPU per call, of all its processes."""
    idle: float
    """Idle cores of the machine."""
    others: float
    """Cores used by other processes."""

    @property
    def cores(self) -> float:
        """Cores used by the proxy."""
        return self.rate * self.proxy / 1000


@dataclass(frozen=True)
class _Used:
    """Seconds of CPU since each process started."""

    proxy: float
    upstream: float
    idle: float

    @classmethod
    def until_now(cls, server: servers.Server, upstream: int) -> _Used:
        idle = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4]
        return cls(
            server.cpu(),
            servers.cpu(upstream),
            int(idle) / os.sysconf("SC_CLK_TCK"),
        )


def measured(
    server: servers.Server, workers: int, upstream: int, seconds: float, connections: int
) -> Round:
    port = urlsplit(server.base_url).port or 0
    before, began = _Used.until_now(server, upstream), time.perf_counter()
    asked = load.ask(port, connections, seconds)
    passed, after = time.perf_counter() - began, _Used.until_now(server, upstream)
    if not asked.answers:
        raise RuntimeError(f"{workers} worker(s) answered nothing in {passed:.0f} s")
    proxy, idle = after.proxy - before.proxy, after.idle - before.idle
    clients = asked.cpu + after.upstream - before.upstream
    cores = os.cpu_count() or 1
    return Round(
        rate=asked.answers / passed,
        proxy=1000 * proxy / asked.answers,
        idle=idle / passed,
        others=max(0.0, cores - (idle + proxy + clients) / passed),
    )


def rounds(
    upstream: load.Upstream, pairs: int, seconds: float, connections: int
) -> dict[int, list[Round]]:
    found: dict[int, list[Round]] = {workers: [] for workers in WORKERS}
    for start in range(STARTS):
        with ExitStack() as running:
            proxies = {
                workers: running.enter_context(
                    servers.proxy(upstream.base_url, "--workers", str(workers))
                )
                for workers in WORKERS
            }
            time.sleep(_SETTLE_SECONDS)
            for server in proxies.values():
                _warm(urlsplit(server.base_url).port or 0, connections)
            for _ in range(start, pairs, STARTS):
                for workers, server in proxies.items():
                    one = measured(server, workers, upstream.pid, seconds, connections)
                    found[workers].append(one)
                    print(
                        f"{workers} worker(s): {one.rate:.0f} calls/s, {one.proxy:.2f} ms of CPU each, "
                        f"{one.idle:.2f} cores idle, {one.others:.2f} with other work",
                        flush=True,
                    )
    return found


def memory(base_url: str, workers: int) -> float:
    """MiB of all processes, before any request."""
    with servers.proxy(base_url, "--workers", str(workers)) as server:
        time.sleep(_SETTLE_SECONDS)
        return server.memory()


def _warm(port: int, connections: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while load.ask(port, connections, 2).answers < 4 * connections and time.monotonic() < until:
        pass


def table(found: dict[int, list[Round]], seconds: float) -> Iterator[str]:
    one, two = (found[workers] for workers in WORKERS)
    yield "| median (range) | 1 worker | 2 workers | ratio of each pair |"
    yield "|---|---|---|---|"
    rows: Sequence[tuple[str, Callable[[Round], float], int]] = (
        (f"calls/s, {len(one)} rounds of {seconds:g} s", attrgetter("rate"), 0),
        ("CPU per call, ms", attrgetter("proxy"), 2),
        ("cores used by the proxy", attrgetter("cores"), 2),
        ("... idle", attrgetter("idle"), 2),
    )
    for name, value, digits in rows:
        few, many = [value(each) for each in one], [value(each) for each in two]
        compared = ""
        if value is rows[0][1]:
            compared = _spread([second / first for first, second in zip(few, many, strict=True)], 2)
        yield f"| {name} | {_spread(few, digits)} | {_spread(many, digits)} | {compared} |"


def _spread(values: Sequence[float], digits: int) -> str:
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"
