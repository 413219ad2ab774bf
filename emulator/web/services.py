"""The services of a worker process: the objects that live longer than a request.

`open_services` opens each service after those that it uses and registers it with an `ExitStack`. So services
close in reverse order, also if a later one cannot be opened. Workers share nothing but the database, and the
folder of their run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from emulator.answering.call_approval import asked_person
from emulator.answering.hosted_shell import ContainerShell
from emulator.answering.native.probe import ToolProbe
from emulator.answering.pipeline import Pipeline
from emulator.core.client_keys import ClientKeys
from emulator.core.run_folder import run_folder as own_run_folder
from emulator.database import Journal, Leases, open_database
from emulator.database.counters import Counters
from emulator.database.sqlite import MEMORY
from emulator.fronts.anthropic.threads import Threads, open_threads
from emulator.fronts.responses.background import BackgroundResponses
from emulator.fronts.responses.conversations import Conversations, open_conversations
from emulator.fronts.responses.front import ResponseFront
from emulator.fronts.responses.stored import StoredResponses
from emulator.history import Turns
from emulator.history.log import history_documents
from emulator.hosted.hosted_tool import ToolResolver
from emulator.hosted.room import HostedRoom
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.engines import open_programs
from emulator.interpreter.interpreter import Interpreter
from emulator.interpreter.opening import open_interpreter
from emulator.programs.fingerprints import Fingerprints
from emulator.settings.settings import Settings
from emulator.storage.budgets import Budgets
from emulator.storage.stores import PreparedStores, Stores, open_stores, prepare_stores
from emulator.traces import ARCHIVE_FILE, Archive, Traces
from emulator.upstream.interface import Upstream
from emulator.upstream.reachability import Reachability
from emulator.upstream.upstreams import Upstreams
from emulator.web.middleware import request_log
from emulator.web.middleware.measuring import KernelCounts, measure
from sandbox.programs.server import ProgramServer

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

log = structlog.get_logger()


@dataclass(frozen=True)
class RecordedRequests:
    """The traces of requests: one side for recording, one for reading."""

    traces: Traces
    """Records the requests of this worker."""
    reader: Archive
    """Returns the requests of all workers to the inspector."""


@dataclass(frozen=True)
class Services:
    """Everything that routes and middleware use. `close` closes what `open_services` opened."""

    settings: Settings
    client_keys: ClientKeys | None
    """The keys in the file that the setting ``client_keys_file`` names; None without that setting."""
    stores: Stores
    leases: Leases
    counters: Counters
    upstreams: Upstreams
    reachability: Reachability
    pipeline: Pipeline
    interpreter: Interpreter
    mcp_problems: Mapping[str, str]
    """MCP server of the settings -> why its tools are missing."""
    approvals: Approvals
    """The cells and hosted calls that wait for a person."""
    kernel_counts: KernelCounts
    requests: RecordedRequests
    conversations: Conversations
    threads: Threads
    responses: ResponseFront
    background: BackgroundResponses
    now: Callable[[], float]
    cleanup: ExitStack = field(repr=False)

    def close(self) -> None:
        self.cleanup.close()

    def reload_client_keys(self) -> None:
        if self.client_keys is not None:
            self.client_keys.reload()


def open_services(
    settings: Settings,
    upstream: Upstream | None = None,
    programs: ProgramServer | None = None,
    kernels: Callable[[str], KernelEngine] | None = None,
    hosted: ToolResolver | None = None,
    now: Callable[[], float] = time.time,
    run_folder: Path | None = None,
    prepared: PreparedStores | None = None,
) -> Services:
    """Open all services. The caller closes ``upstream``, ``programs`` and ``kernels`` if it passes them.

    ``run_folder`` is the folder of this run, whose workers share it; without one, this process makes its own.
    ``prepared`` are the stores, if they have been prepared before this process was forked.

    Raises `EmulatorError` or `SandboxUnavailable` if a service cannot be opened.
    """
    with ExitStack() as opening:
        client_keys = ClientKeys(settings.client_keys_file) if settings.client_keys_file else None
        folder = run_folder or opening.enter_context(own_run_folder())
        is_prepared = prepared is not None
        prepared = prepared or prepare_stores(settings, folder, now)
        stores = open_stores(opening, settings, prepared, now)
        leases = Leases(stores.database)
        opening.callback(leases.close)
        fallback = open_database(MEMORY, now)
        opening.callback(fallback.close)
        counters = Counters(stores.database, leases, fallback)
        budgets = None if client_keys is None else Budgets(counters)
        upstreams = Upstreams(
            settings,
            None if upstream is None else lambda _: upstream,
            budgets,
            counters.open,
        )
        opening.callback(upstreams.close)
        clients = len(settings.client_keys) + (client_keys.count if client_keys else 0)
        programs = programs or opening.enter_context(closing(open_programs(settings, clients)))
        database = stores.database
        approvals = Approvals(database)
        interpreter = open_interpreter(
            opening,
            settings,
            stores.containers,
            stores.files,
            approvals,
            database,
            leases,
            kernels,
        )
        mcp_problems: Mapping[str, str] = {}
        if hosted is None:
            seconds = settings.approval_seconds
            ask = asked_person(approvals, seconds) if settings.inspector != "off" else None
            hosted = room = HostedRoom(settings, ask)
            mcp_problems = room.problems
            opening.callback(room.close)
        hosted = ContainerShell(hosted, interpreter, settings)
        opening.callback(approvals.decline_all)
        history = history_documents(database, settings.store_seconds)
        pipeline = Pipeline(
            settings=settings,
            upstreams=upstreams,
            programs=programs,
            store=history if settings.remembers else None,
            hosted=hosted,
            journal=Journal(database, leases, settings.store_seconds),
            turns=Turns(database),
            approvals=approvals if settings.inspector != "off" else None,
            interpreter=interpreter,
            files=stores.files,
            probe=ToolProbe(database),
            fingerprints=Fingerprints(settings.program_key.get_secret_value()),
        )
        kernel_counts = KernelCounts(interpreter)
        requests = _open_requests(opening, settings, kernel_counts, folder, is_prepared=is_prepared)
        seconds = settings.response_seconds if settings.remembers else 0
        conversations = open_conversations(database, leases, seconds)
        stored_responses = StoredResponses(database, seconds)
        background = BackgroundResponses(
            max(1, settings.threads // settings.workers), requests.traces, leases
        )
        opening.callback(background.close)
        return Services(
            settings=settings,
            client_keys=client_keys,
            stores=stores,
            leases=leases,
            counters=counters,
            upstreams=upstreams,
            reachability=Reachability(upstreams),
            pipeline=pipeline,
            interpreter=interpreter,
            mcp_problems=mcp_problems,
            approvals=approvals,
            kernel_counts=kernel_counts,
            requests=requests,
            conversations=conversations,
            threads=open_threads(database, leases, seconds),
            responses=ResponseFront(pipeline, stored_responses, conversations),
            background=background,
            now=now,
            cleanup=opening.pop_all(),
        )


def _open_requests(
    opening: ExitStack,
    settings: Settings,
    kernel_counts: KernelCounts,
    run_folder: Path,
    *,
    is_prepared: bool,
) -> RecordedRequests:
    inspected = settings.inspector != "off"
    traces = Traces(records_wire=inspected or settings.log_bodies)
    if settings.log_bodies:
        traces.on_finish(request_log.log_turns)
    traces.on_finish(request_log.log_answer)
    traces.on_finish(measure)
    traces.on_finish(kernel_counts.count)
    if settings.otel:
        from emulator.web.middleware.telemetry import Telemetry

        telemetry = Telemetry(settings)
        opening.callback(telemetry.close)
        traces.on_begin(telemetry.begin)
        traces.on_finish(telemetry.finish)
    # A single worker needs no file for them: they stay in its memory.
    place = MEMORY if settings.workers == 1 else str(run_folder / ARCHIVE_FILE)
    database = open_database(place, is_prepared=is_prepared and place != MEMORY)
    opening.callback(database.close)
    archive = Archive(database, has_other_readers=settings.workers > 1)
    if inspected:
        opening.callback(archive.close)
        traces.on_begin(archive.begin)
        traces.on_finish(archive.finish)
        traces.on_refusal(archive.finish)
    return RecordedRequests(traces, archive)
