"""Update the metrics after an answer. No label contains text from a client."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from emulator.core import metrics
from emulator.reading.readers import READERS
from emulator.traces import RecordedBlock, Trace

_CHARS_PER_TOKEN = 4
"""Approximately."""


class KernelCounts:
    """How many kernels this process has, by state."""

    def __init__(self, interpreter: object) -> None:
        self._interpreter = interpreter

    def counts(self) -> Mapping[str, int]:
        counts: Mapping[str, int] = getattr(self._interpreter, "pool_counts", dict)()
        return counts

    def count(self, _trace: Trace | None = None) -> None:
        """Set the gauges: when this worker serves the metrics, and after each answer, if another one does."""
        for state, number in self.counts().items():
            _gauge(state).set(number)


_gauge = cache(metrics.KERNELS.labels)  # few labels, used by every answer


def measure(trace: Trace) -> None:
    metrics.ANSWERS.labels(trace.route, trace.mode or "none", trace.state).inc()
    if trace.seconds is not None:
        metrics.ANSWER_SECONDS.labels(trace.route).observe(trace.seconds)
    if trace.first_output is not None:
        metrics.FIRST_TOKEN_SECONDS.labels(trace.route).observe(trace.first_output)
    if trace.turns_saved:
        # The prompt that was not sent would be about as long as the request.
        metrics.TOKENS_SAVED.inc(trace.turns_saved * (len(trace.body) // _CHARS_PER_TOKEN))
    for turn in trace.turns:
        for block in turn.blocks:
            reader = block.dialect if block.dialect in READERS else "other"
            metrics.BLOCKS.labels(reader, _outcome(block)).inc()


def _outcome(block: RecordedBlock) -> str:
    if block.quoted:
        return "quoted"
    return "unreadable" if block.problem else "read"
