"""The Prometheus metrics. Names follow its conventions; no label value comes from a client."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

SHARED_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""If this variable names a folder when the module is imported, several processes share their counts there."""

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
    "Answers, by the source of their calls (emulated, native, relayed, none) and outcome "
    "(answered, called, failed, left: the client disconnected)",
    ["route", "mode", "outcome"],
)
_LONG = (0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 60, 100, 300, 1000)
FIRST_TOKEN_SECONDS = Histogram(
    "emulator_first_token_seconds",
    "Time until the first text, reasoning or call of an answer was sent",
    ["route"],
    buckets=(0.03, *_LONG[:-1]),
)
ANSWER_SECONDS = Histogram(
    "emulator_answer_seconds", "Time until an answer was sent", ["route"], buckets=(0.03, *_LONG)
)
TOKENS = Counter(
    "emulator_tokens",
    "Tokens of all model turns and passed-on requests, reported or estimated; in: prompts, out: replies",
    ["direction", "model", "client"],
)
TOKENS_SAVED = Counter(
    "emulator_tokens_saved", "Estimated prompt tokens that resumed programs avoided"
)
BLOCKS = Counter(
    "emulator_blocks",
    "Blocks of replies, by reader and outcome: read, unreadable, or quoted (a repetition of text from "
    "another message)",
    ["reader", "outcome"],
)
PROGRAM_RUNS = Counter(
    "emulator_program_runs",
    "Runs of tool programs, by outcome: read (literal calls, nothing runs), ran, failed (an error of the "
    "program, or a limit)",
    ["outcome"],
)
LIMITS_ALONE = Counter(
    "emulator_limits_alone",
    "Limits of clients that this process counted in its own memory, because the database failed",
)
KERNELS = Gauge(
    "emulator_kernels",
    "Kernels of the interpreter: waiting, in_use, and the maximum in use",
    ["state"],
    multiprocess_mode="livesum",
)
UPSTREAM_ERRORS = Counter(
    "emulator_upstream_errors",
    "Failed attempts of upstream requests: unreachable, timeout, rate_limited, unauthorized, refused (other "
    "4xx), failed (5xx and invalid answers), broken (the answer ended early)",
    ["upstream", "kind"],
)
MODEL_TURNS = Counter(
    "emulator_model_turns", "Requests to the upstream in which tools were offered"
)
REPAIRS = Counter("emulator_repairs", "Model turns whose reply was unusable", ["kind"])
TOOL_CALLS = Counter("emulator_tool_calls", "Tool calls sent to clients")
TOOLS_DROPPED = Counter(
    "emulator_tools_dropped", "Hosted tools that were removed from a request", ["type"]
)
NATIVE_REPAIRS = Counter(
    "emulator_native_repairs",
    "Faults repaired in replies of upstreams that call tools natively",
    ["kind"],
)
FALLBACKS = Counter("emulator_fallbacks", "Answers for which a fallback upstream was used")
TURNS_SAVED = Counter(
    "emulator_turns_saved", "Answers that a resumed program gave without a model turn"
)
PROGRAMS_DROPPED = Counter(
    "emulator_programs_dropped", "Suspended programs that were not resumed", ["reason"]
)
NOT_STORED = Counter(
    "emulator_responses_not_stored",
    "Responses that their clients wanted stored, and that could not be",
)
HOSTED_CALLS = Counter(
    "emulator_hosted_calls",
    "Calls of tools that the proxy runs itself, by kind (mcp, web_search, shell) and outcome: ran, failed",
    ["kind", "outcome"],
)
CELLS = Counter("emulator_cells", "Cells run in containers", ["status"])

for _metric in (REQUESTS, ANSWERS, FIRST_TOKEN_SECONDS, ANSWER_SECONDS, TOKENS):
    # Each request updates them. No series is ever removed, so each is looked up by its labels once.
    _metric.labels = lru_cache(maxsize=4096)(_metric.labels)  # type: ignore[method-assign, assignment]


_MAX_MODELS = 1000
_listed_models: set[str] = set()


def add_models(names: Iterable[str]) -> None:
    """Make labels of the models that an upstream lists."""
    _listed_models.update(islice(names, max(0, _MAX_MODELS - len(_listed_models))))


def model_label(name: str) -> str:
    """Return ``name`` if an upstream lists this model, else "other": a client may write any name."""
    return name if name in _listed_models else "other"


def page(*, names_clients: bool) -> bytes:
    """The metrics of all processes of this run, in Prometheus' text format.

    Without ``names_clients`` each label ``client`` is empty, and the samples of all clients are added up.
    """
    registry = REGISTRY
    if SHARED_VARIABLE in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry if names_clients else _WithoutClients(registry))


class _WithoutClients(Collector):
    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        for family in self._source.collect():
            merged: dict[object, Sample] = {}
            for sample in family.samples:
                labels = {name: "" if name == "client" else v for name, v in sample.labels.items()}
                key = (sample.name, *labels.items())
                value = sample.value
                if (other := merged.get(key)) is not None:
                    # A counter's time of creation is that of the oldest part.
                    add = min if sample.name.endswith("_created") else operator.add
                    value = add(value, other.value)
                merged[key] = sample._replace(labels=labels, value=value)
            family.samples = [*merged.values()]
            yield family


def process_died(pid: int) -> None:
    """Remove a dead process from the gauges; its counters stay."""
    if SHARED_VARIABLE in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
