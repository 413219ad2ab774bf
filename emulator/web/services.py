"""The services of a worker process: the objects that live longer than a request.

`open_services` opens each service after those that it uses and registers it with an `ExitStack`. So services
close in reverse order, also if a later one cannot be opened. With several workers, the ``keeper`` process
owns what they share, and the services here are its clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.answering.hosted_shell import ContainerShell
from emulator.answering.native.probe import ToolProbe
from emulator.answering.pipeline import Pipeline
from emulator.anthropic.threads import Threads
from emulator.client_keys import ClientKeys
from emulator.engines import open_programs
from emulator.hosted.hosted_tool import ToolResolver
from emulator.hosted.room import HostedRoom
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.opening import open_interpreter
from emulator.interpreter.remote import AnyInterpreter, RemoteInterpreter
from emulator.programs.fingerprints import Fingerprints
from emulator.responses.background import BackgroundResponses
from emulator.responses.conversations import Conversations
from emulator.responses.front import ResponseFront
from emulator.responses.signals import Signals
from emulator.responses.stored import StoredResponses
from emulator.settings import Settings
from emulator.shared.rpc import local_calls
from emulator.shared.state import SharedState, open_state
from emulator.storage.blob_store import BlobStore, open_blob_store
from emulator.storage.budgets import Budgets
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.key_value import KeyValueStore, RedisStore, open_store
from emulator.traces import TraceReader, Traces
from emulator.traces.sender import TraceSender
from emulator.traces.store import open_traces
from emulator.upstream.interface import Upstream
from emulator.upstream.reachability import Reachability
from emulator.upstream.upstreams import Upstreams
from emulator.web.middleware import request_log
from emulator.web.middleware.measuring import KernelCounts, measure
from sandbox.programs.server import ProgramServer

if TYPE_CHECKING:
    from emulator.web.server.keeper import Keeper
    from sandbox.kernel.engine import KernelEngine


@dataclass(frozen=True)
class Stores:
    """The stores for data that outlives a request."""

    key_values: KeyValueStore | None
    """Holds programs and responses. None if the store cannot be opened."""
    blobs: BlobStore
    files: Files
    containers: Containers


@dataclass(frozen=True)
class RecordedRequests:
    """The traces of requests: one side for recording, one for reading."""

    traces: Traces
    """Records the requests of this worker."""
    reader: TraceReader
    """Returns the requests of all workers to the inspector."""


@dataclass(frozen=True)
class Services:
    """Everything that routes and middleware use. `close` closes what `open_services` opened."""

    settings: Settings
    client_keys: ClientKeys | None
    """The keys in the file that the setting ``client_keys_file`` names; None without that setting."""
    stores: Stores
    state: SharedState
    upstreams: Upstreams
    reachability: Reachability
    pipeline: Pipeline
    interpreter: AnyInterpreter
    approvals: Approvals
    """The hosted calls that wait for a person."""
    kernel_counts: KernelCounts
    requests: RecordedRequests
    conversations: Conversations
    threads: Threads
    responses: ResponseFront
    background: BackgroundResponses
    keeper: Keeper | None
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
    keeper: Keeper | None = None,
) -> Services:
    """Open all services. The caller closes ``upstream``, ``programs`` and ``kernels`` if it passes them.

    Raises `EmulatorError` or `SandboxUnavailable` if a service cannot be opened.
    """
    with ExitStack() as opening:
        client_keys = ClientKeys(settings.client_keys_file) if settings.client_keys_file else None
        state = open_state(settings.store, None if keeper is None else keeper.client)
        budgets = None if client_keys is None else Budgets(state)
        upstreams = _open_upstreams(opening, settings, upstream, budgets, keeper)
        programs = programs or opening.enter_context(closing(open_programs(settings)))
        stores = _open_stores(opening, settings, now)
        key_values = stores.key_values
        interpreter = _open_interpreter(opening, settings, stores, kernels, keeper)
        if hosted is None:
            hosted = HostedRoom(settings)
            opening.callback(hosted.close)
        hosted = ContainerShell(hosted, interpreter, settings)
        # Other processes may show the inspector, or receive the request that polls a response of this one.
        is_shared = keeper is not None or isinstance(key_values, RedisStore)
        shared = key_values if is_shared else None
        approvals = Approvals(None if shared is None else ApprovalRecords(shared))
        opening.callback(approvals.decline_all)
        pipeline = Pipeline(
            settings=settings,
            upstreams=upstreams,
            programs=programs,
            store=key_values if settings.programs == "on" else None,
            hosted=hosted,
            approvals=approvals if settings.inspector != "off" else None,
            interpreter=interpreter,
            files=stores.files,
            probe=ToolProbe(key_values),
            fingerprints=Fingerprints(settings.program_key.get_secret_value()),
        )
        kernel_counts = KernelCounts(interpreter)
        requests = _open_requests(opening, settings, kernel_counts, keeper)
        conversations = Conversations(key_values, settings.response_seconds)
        stored_responses = StoredResponses(key_values, settings.response_seconds)
        return Services(
            settings=settings,
            client_keys=client_keys,
            stores=stores,
            state=state,
            upstreams=upstreams,
            reachability=Reachability(upstreams),
            pipeline=pipeline,
            interpreter=interpreter,
            approvals=approvals,
            kernel_counts=kernel_counts,
            requests=requests,
            conversations=conversations,
            threads=Threads(key_values, settings.response_seconds),
            responses=ResponseFront(pipeline, stored_responses, conversations),
            background=_open_background(opening, settings, requests.traces, shared),
            keeper=keeper,
            now=now,
            cleanup=opening.pop_all(),
        )


def _open_upstreams(
    opening: ExitStack,
    settings: Settings,
    upstream: Upstream | None,
    budgets: Budgets | None,
    keeper: Keeper | None,
) -> Upstreams:
    upstreams = Upstreams(
        settings,
        None if upstream is None else lambda _: upstream,
        budgets,
        take_slot=None if keeper is None else keeper.counts.acquire,
        breaker_state=None if keeper is None else keeper.breakers.__getitem__,
    )
    opening.callback(upstreams.close)
    return upstreams


def _open_stores(opening: ExitStack, settings: Settings, now: Callable[[], float]) -> Stores:
    key_values = open_store(settings.store, settings.store_seconds)
    if key_values is not None:
        opening.callback(key_values.close)
    blobs = open_blob_store(settings.files_dir, settings.files_index, now=now)
    opening.callback(blobs.close)
    files = Files(blobs, settings)
    return Stores(key_values, blobs, files, Containers(blobs, files, settings))


def _open_interpreter(
    opening: ExitStack,
    settings: Settings,
    stores: Stores,
    kernels: Callable[[str], KernelEngine] | None,
    keeper: Keeper | None,
) -> AnyInterpreter:
    """Open the code interpreter. If there is a keeper, the kernels run there."""
    if keeper is None:
        return open_interpreter(opening, settings, stores.containers, stores.files, kernels)
    return RemoteInterpreter(keeper.client, stores.containers)


def _open_requests(
    opening: ExitStack,
    settings: Settings,
    kernel_counts: KernelCounts,
    keeper: Keeper | None,
) -> RecordedRequests:
    inspected = settings.inspector != "off"
    traces = Traces(records_wire=inspected)
    traces.on_finish(request_log.log_answer)
    traces.on_finish(measure)
    traces.on_finish(kernel_counts.count)
    if settings.otel:
        from emulator.web.middleware.telemetry import Telemetry

        telemetry = Telemetry(settings)
        opening.callback(telemetry.close)
        traces.on_begin(telemetry.begin)
        traces.on_finish(telemetry.finish)
    call = local_calls(open_traces(settings).handlers()) if keeper is None else keeper.client.call
    sender = TraceSender(call, settings.inspector_bytes)
    if inspected:
        opening.callback(sender.close)
        traces.on_begin(sender.begin)
        traces.on_finish(sender.finish)
    return RecordedRequests(traces, TraceReader(call, sender.flush))


def _open_background(
    opening: ExitStack,
    settings: Settings,
    traces: Traces,
    shared: KeyValueStore | None,
) -> BackgroundResponses:
    background = BackgroundResponses(
        max(1, settings.threads // settings.workers),
        settings.answer_seconds,
        traces,
        None if shared is None else Signals(shared),
    )
    opening.callback(background.close)
    return background
