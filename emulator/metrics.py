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
ANSWERS = Counter(
    "emulator_answers",
    "Answers, by who made their calls (emulated, native, relayed, none) and how they came out "
    "(answered, called, failed, left)",
    ["route", "mode", "outcome"],
)
_LONG = (0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 60, 100, 300, 1000)
FIRST_TOKEN_SECONDS = Histogram(
    "emulator_first_token_seconds",
    "Time until the first words, reasoning or call of an answer left",
    ["route"],
    buckets=(0.03, *_LONG[:-1]),
)
ANSWER_SECONDS = Histogram(
    "emulator_answer_seconds", "Time until an answer had left", ["route"], buckets=(0.03, *_LONG)
)
TOKENS = Counter(
    "emulator_tokens",
    "Tokens of all turns of the models, as told or as estimated; in: prompts, out: replies",
    ["direction"],
)
TOKENS_SAVED = Counter(
    "emulator_tokens_saved", "Estimated tokens of prompts that waiting programs did without"
)
BLOCKS = Counter(
    "emulator_blocks",
    "Blocks of replies, by the reader that read them (read) or could not (unreadable), or that "
    "repeated what somebody else had written (quoted)",
    ["reader", "outcome"],
)
PROGRAM_RUNS = Counter(
    "emulator_program_runs",
    "Runs of tool programs, by engine (none: nothing but calls, which needs none): ran, failed (its own "
    "fault), limit, or unable (another engine is tried)",
    ["engine", "outcome"],
)
KERNELS = Gauge(
    "emulator_kernels",
    "Kernels of programs and of the interpreter: waiting, in_use, and most that may be in use",
    ["pool", "state"],
    multiprocess_mode="livesum",
)
UPSTREAM_ERRORS = Counter(
    "emulator_upstream_errors",
    "Requests to upstreams that failed, each attempt: unreachable, timeout, rate_limited, "
    "unauthorized, refused (other 4xx), failed (5xx and garbage), broken (in the middle)",
    ["upstream", "kind"],
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
