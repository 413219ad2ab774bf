"""Cores and memory of a load: the sum of the measured costs of its requests, streams, chunks and kernels."""

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
    """MiB of memory of each further worker."""
    kernel: float | None
    """MiB of memory of a container's kernel; None without a sandbox."""


@dataclass(frozen=True)
class Use:
    """The load on a proxy."""

    requests: float
    """Emulated calls a second."""
    streams: int
    """Open streams; each sends CHUNKS_A_SECOND for STREAM_SECONDS."""
    kernels: int


CHUNKS_A_SECOND = 20.0
STREAM_SECONDS = 20.0
SMALL = Use(requests=2, streams=10, kernels=2)
TIMES = (1, 10, 100, 1000)
THREADS = 1024
KERNELS = 16
"""Defaults of the settings `threads` and `max_kernels`."""


def fitted(few: tuple[int, float], many: tuple[int, float]) -> tuple[float, float]:
    """CPU of a stream's start and of one chunk, from (chunks, CPU per stream) of short and of long
    streams.
    """
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
    """The defaults that the load exceeds, then the limits of the machine (``memory`` in GiB)."""
    found = []
    if cores(use, costs) > 1:
        found.append("one worker (`--workers`)")
    if use.streams > THREADS:
        found.append(f"`threads` ({THREADS:,})")
    if use.kernels > KERNELS:
        found.append(f"`max_kernels` ({KERNELS})")
    if cores(use, costs) > processors:
        found.append("the machine's cores")
    if gigabytes(use, costs) > memory:
        found.append("the machine's memory")
    return ", ".join(found) or "nothing"


def table(costs: Costs, processors: int, memory: float) -> Sequence[str]:
    rows = [
        "| load | calls/s | open streams | kernels | cores | GiB | exceeded |",
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
