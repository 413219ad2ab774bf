"""Cores and memory as sums of what was measured of one request, one stream, one chunk, one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    request: float
    """Milliseconds of CPU of an emulated tool call."""
    begin: float
    """Milliseconds of CPU of a stream, without its chunks."""
    chunk: float
    """Milliseconds of CPU of each chunk of a stream."""
    stream: float
    """KiB of memory of an open stream."""
    worker: float
    """MiB of memory of a proxy with one worker."""
    further: float
    """MiB of memory of each further worker; that of the keeper is in it."""
    kernel: float | None
    """MiB of memory of a container's kernel; None where no sandbox can be had."""


@dataclass(frozen=True)
class Use:
    """What is asked of a proxy."""

    requests: float
    """Emulated calls a second."""
    streams: int
    """Open ones; each has CHUNKS_A_SECOND, and lasts STREAM_SECONDS."""
    kernels: int


CHUNKS_A_SECOND = 20.0
STREAM_SECONDS = 20.0
SMALL = Use(requests=2, streams=10, kernels=2)
TIMES = (1, 10, 100, 1000)
THREADS = 1024
KERNELS = 16
"""Those settings' defaults."""


def fitted(few: tuple[int, float], many: tuple[int, float]) -> tuple[float, float]:
    """The CPU of a stream's begin and of a chunk, from (chunks, CPU a stream) of shorter and longer ones."""
    chunk = (many[1] - few[1]) / (many[0] - few[0])
    return max(0.0, few[1] - chunk * few[0]), chunk


def cores(use: Use, costs: Costs) -> float:
    streams = use.streams * (costs.begin / STREAM_SECONDS + costs.chunk * CHUNKS_A_SECOND)
    return (use.requests * costs.request + streams) / 1000


def gigabytes(use: Use, costs: Costs) -> float:
    """GiB, with a worker for each core."""
    workers = costs.worker + costs.further * max(0.0, round(cores(use, costs) + 0.49) - 1)
    kernels = use.kernels * (costs.kernel or 0)
    return (workers + use.streams * costs.stream / 1024 + kernels) / 1024


def breaks(use: Use, costs: Costs, processors: int, memory: float) -> str:
    """What the defaults do not hold, then what the machine does not, with ``memory`` in GiB."""
    found = []
    if cores(use, costs) > 1:
        found.append("one worker's core (`--workers`)")
    if use.streams > THREADS:
        found.append(f"`threads` ({THREADS:,})")
    if use.kernels > KERNELS:
        found.append(f"`max_kernels` ({KERNELS})")
    if cores(use, costs) > processors:
        found.append("this machine's cores")
    if gigabytes(use, costs) > memory:
        found.append("its memory")
    return ", ".join(found) or "nothing"


def table(costs: Costs, processors: int, memory: float) -> Sequence[str]:
    rows = [
        "| times | calls/s | open streams | kernels | cores | GiB | what gives way |",
        "|" + 7 * "---|",
    ]
    for times in TIMES:
        use = Use(SMALL.requests * times, SMALL.streams * times, SMALL.kernels * times)
        rows.append(
            f"| {times:,} | {use.requests:,.0f} | {use.streams:,} | {use.kernels:,} "
            f"| {cores(use, costs):.1f} | {gigabytes(use, costs):.1f} "
            f"| {breaks(use, costs, processors, memory)} |"
        )
    return rows
