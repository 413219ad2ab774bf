"""What metrics learn of an answer once it has left. No label is anything that a client makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from emulator import metrics
from emulator.reading.readers import READERS
from emulator.traces import RecordedBlock, Trace

_CHARS = 4
"""Of a token, about."""


class KernelCounts:
    """Of the pools of the engines that have any."""

    def __init__(self, **pools: Sequence[object]) -> None:
        """A pool's name -> who has it."""
        self._pools = pools

    def counts(self) -> list[tuple[str, Mapping[str, int]]]:
        """Of each pool that this process has: how many kernels are in which state."""
        told: list[tuple[str, Mapping[str, int]]] = [
            (pool, getattr(owner, "pool_counts", dict)())
            for pool, owners in self._pools.items()
            for owner in owners
        ]
        return [(pool, counts) for pool, counts in told if counts]

    def count(self, _trace: Trace | None = None) -> None:
        """Set the gauges: at a look at them, and at each answer, since other workers may be looked at."""
        for pool, counts in self.counts():
            for state, number in counts.items():
                _gauge(pool, state).set(number)


_gauge = cache(metrics.KERNELS.labels)  # few, and all other answers want them too


def measure(trace: Trace) -> None:
    metrics.ANSWERS.labels(trace.route, trace.mode or "none", trace.state).inc()
    if trace.seconds is not None:
        metrics.ANSWER_SECONDS.labels(trace.route).observe(trace.seconds)
    if trace.first_output is not None:
        metrics.FIRST_TOKEN_SECONDS.labels(trace.route).observe(trace.first_output)
    if trace.turns_saved:
        # The prompt that was not sent is about as long as the request.
        metrics.TOKENS_SAVED.inc(trace.turns_saved * (len(trace.body) // _CHARS))
    for turn in trace.turns:
        for block in turn.blocks:
            reader = block.dialect if block.dialect in READERS else "other"
            metrics.BLOCKS.labels(reader, _outcome(block)).inc()


def _outcome(block: RecordedBlock) -> str:
    if block.quoted:
        return "quoted"
    return "unreadable" if block.problem else "read"
