"""What is counted, for Prometheus. Names follow its conventions; no label holds anything of a client."""

from __future__ import annotations

import os

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where it names a folder, when this module is imported, several processes count together there."""

REQUESTS = Counter("emulator_requests", "HTTP requests", ["path", "status"])
OPEN_REQUESTS = Gauge(
    "emulator_open_requests",
    "Requests being served, streams until they end",
    multiprocess_mode="livesum",
)
WAITING_REQUESTS = Gauge(
    "emulator_waiting_requests", "Requests that wait for a thread", multiprocess_mode="livesum"
)
SECONDS = Histogram(
    "emulator_request_seconds",
    "Time until a response began",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
MODEL_TURNS = Counter(
    "emulator_model_turns", "Requests to the upstream in which tools were offered"
)
REPAIRS = Counter("emulator_repairs", "Model turns that were of no use", ["kind"])
TOOL_CALLS = Counter("emulator_tool_calls", "Tool calls sent to clients")
TOOLS_DROPPED = Counter(
    "emulator_tools_dropped", "Hosted tools that were left out of a request", ["type"]
)
NATIVE_REPAIRS = Counter(
    "emulator_native_repairs", "Faults of replies whose upstream calls tools itself", ["kind"]
)
FALLBACKS = Counter("emulator_fallbacks", "Answers for which another upstream was asked")
TURNS_SAVED = Counter(
    "emulator_turns_saved", "Answers that a waiting program gave without the model"
)
PROGRAMS_DROPPED = Counter(
    "emulator_programs_dropped", "Waiting programs that were not gone on with", ["reason"]
)
CELLS = Counter("emulator_cells", "Cells run in containers", ["status"])


def page() -> bytes:
    """All that was counted, by all processes of this run, in Prometheus' text format."""
    registry = REGISTRY
    if SHARED_VARIABLE in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def process_died(pid: int) -> None:
    """What a process had open is open no more; what it counted stays counted."""
    if SHARED_VARIABLE in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
