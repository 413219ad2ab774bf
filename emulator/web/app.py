"""`create_app` makes the Flask application: what it opens, what it serves, what every request passes.

The composition root: every long-lived part (store, engines, kernels, files) is opened here and closed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask

from emulator.answering.native.probe import Probe
from emulator.answering.pipeline import Pipeline
from emulator.client_keys import ClientKeys
from emulator.engines import PROGRAM_KERNELS, open_engines
from emulator.interpreter.interface import Cells
from emulator.interpreter.opening import open_interpreter
from emulator.responses.background import BackgroundResponses
from emulator.responses.conversations import Conversations
from emulator.responses.front import ResponseFront
from emulator.responses.signals import Signals
from emulator.responses.stored import StoredResponses
from emulator.settings import Settings
from emulator.shared.counts import Places
from emulator.shared.tokens import KeeperStorage
from emulator.storage.blob_store import open_blob_store
from emulator.storage.budgets import Budgets
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.key_value import RedisStore, open_store
from emulator.traces import Kept, Traces
from emulator.traces.remote import RemoteTraces
from emulator.traces.sender import Sender
from emulator.upstream.interface import OneUpstream
from emulator.upstream.reachability import Reachability
from emulator.upstream.upstreams import Upstreams
from emulator.web.inspector.access import Access
from emulator.web.inspector.container_pages import add_containers
from emulator.web.inspector.playground import Asker
from emulator.web.inspector.playground_pages import add_playground
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import make_inspector
from emulator.web.inspector.sessions import OwnSessions, RemoteSessions, Sessions
from emulator.web.inspector.status_page import add_status
from emulator.web.middleware import request_log
from emulator.web.middleware.admission import Admission
from emulator.web.middleware.authorization import recognizer, require_key
from emulator.web.middleware.browser_guard import guard
from emulator.web.middleware.cross_origin import allow_origins
from emulator.web.middleware.disconnects import Departures
from emulator.web.middleware.error_replies import error_reply
from emulator.web.middleware.limits import add_limits
from emulator.web.middleware.loop_guard import loop_guard
from emulator.web.middleware.measuring import KernelCounts, measure
from emulator.web.middleware.pings import Pings
from emulator.web.middleware.recording import Recording
from emulator.web.routes import (
    chat,
    containers,
    conversations,
    executions,
    files,
    health,
    messages,
    openapi,
    pass_through,
    responses,
)
from emulator.web.routes.uploads import read_upload
from emulator.web.warm_up import warm_up
from sandbox.engine import Engine

if TYPE_CHECKING:
    from emulator.web.server.keeper import Keeper
    from sandbox.kernel import KernelEngine


class _App(Flask):
    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """As it is: nothing here is a coroutine, which Flask asks of each function for each request."""
        return func


def create_app(
    settings: Settings,
    *,
    upstream: OneUpstream | None = None,
    engines: Sequence[Engine] | None = None,
    kernels: Callable[[str], KernelEngine] | None = None,
    now: Callable[[], float] = time.time,
    keeper: Keeper | None = None,
) -> Flask:
    """The application. What it opened itself, ``app.extensions["emulator"].close()`` closes.

    ``upstream`` answers for all that the settings name; ``engines`` run tool programs; ``kernels`` gives
    the engine for a container's memory limit; ``keeper`` has what the workers of one proxy share.
    """
    owned = ExitStack()
    counters = None if keeper is None else KeeperStorage(keeper.wire)
    keys = ClientKeys(settings.client_keys_file) if settings.client_keys_file else None
    budgets = None if keys is None else Budgets(settings.store, counters)
    take_place = None if keeper is None else Places(keeper.counts).take
    opener = None if upstream is None else lambda _: upstream
    breaker_state = None if keeper is None else keeper.breakers.of
    upstreams = Upstreams(
        settings, opener, budgets, take_place=take_place, breaker_state=breaker_state
    )
    owned.callback(upstreams.close)
    if engines is None:
        place = (PROGRAM_KERNELS, settings.max_kernels, 0.0)
        engines = open_engines(
            settings, None if take_place is None else partial(take_place, *place)
        )
        for engine in engines:
            owned.callback(engine.close)

    store = open_store(settings.store, settings.store_seconds)
    if store is not None:
        owned.callback(store.close)
    programs = store if settings.programs == "on" else None

    folder = open_blob_store(settings.files_dir, settings.files_index, now=now)
    owned.callback(folder.close)
    uploaded = Files(folder, settings)
    stored_containers = Containers(folder, uploaded, settings)
    interpreter: Cells
    if keeper is not None:
        from emulator.interpreter.remote import RemoteInterpreter

        interpreter = RemoteInterpreter(keeper.wire, stored_containers)
    else:
        interpreter = open_interpreter(owned, settings, stored_containers, uploaded, kernels)

    app = _App(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.extensions["emulator"] = owned
    app.extensions["emulator.reload"] = keys.reload if keys is not None else None
    app.extensions["emulator.reachability"] = reachability = Reachability(upstreams)
    pipeline = Pipeline(
        settings=settings,
        upstreams=upstreams,
        engines=engines,
        store=programs,
        interpreter=interpreter,
        files=uploaded,
        probe=Probe(store),
    )
    app.extensions["emulator.warm_up"] = partial(warm_up, pipeline)
    several = keeper is not None or isinstance(store, RedisStore)
    inspected = settings.inspector == "on"
    app.extensions["emulator.traces"] = requests = Traces(
        settings.inspector_traces if inspected and keeper is None else 0,
        settings.inspector_bytes,
        settings.inspector_seconds,
        wired=inspected,
    )
    background = BackgroundResponses(
        max(1, settings.threads // settings.workers),
        settings.answer_seconds,
        requests,
        Signals(store) if store is not None and several else None,
    )
    owned.callback(background.close)
    talks = Conversations(store, settings.response_seconds)
    stored_responses = StoredResponses(store, settings.response_seconds)
    response_front = ResponseFront(pipeline, stored_responses, talks)
    read = partial(read_upload, folder.scratch, settings.max_file_bytes)

    api = Blueprint("api", __name__)
    require_key(api, settings, keys, now)
    add_limits(app, api, settings, keeper)
    requests.on_finished(request_log.answered)
    requests.on_finished(measure)
    pools = KernelCounts(programs=engines, interpreter=[interpreter])
    requests.on_finished(pools.count)
    recording = Recording(app, api, requests)
    if settings.otel:
        from emulator.web.middleware.telemetry import Telemetry

        telemetry = Telemetry(settings)
        owned.callback(telemetry.close)
        requests.on_begun(telemetry.begun)
        requests.on_finished(telemetry.finished)
    kept: Kept = requests
    sessions: Sessions = OwnSessions()
    if keeper is not None and inspected:
        sender = Sender(keeper.wire, settings.inspector_bytes)
        owned.callback(sender.close)
        kept, sessions = RemoteTraces(keeper.wire, sender.flush), RemoteSessions(keeper.wire)
        requests.on_begun(sender.begun)
        requests.on_finished(sender.finished)  # the last: it may leave out what the others read
    chat.add_routes(api, pipeline, upstreams, settings)
    conversations.add_routes(api, talks)
    responses.add_routes(api, response_front, settings, background)
    files.add_routes(api, uploaded, read)
    containers.add_routes(api, interpreter, uploaded, read)
    executions.add_routes(api, interpreter, settings, recording.begin)
    messages.add_routes(api, pipeline, settings)
    pass_through.add_routes(api, upstreams, settings, recording.begin)
    app.register_blueprint(api, url_prefix="/v1", name="v1")
    app.register_blueprint(api, name="bare")  # clients whose base_url lacks /v1
    if inspected:
        pages = Pages(settings)
        access = Access(settings, recognizer(settings, keys, now), sessions)
        inspector = make_inspector(access, pages, kept)
        asker = Asker(pipeline, response_front, requests)
        add_playground(inspector, pages, asker, settings, kept)
        add_containers(inspector, pages, interpreter, kept)
        add_status(inspector, pages, settings, upstreams, reachability, engines, pools, kept)
        app.register_blueprint(inspector)
    openapi.add_routes(app)
    health.add_routes(app, engines, reachability, pools)

    # In this order before a request, and in the opposite one after it.
    app.before_request(request_log.begin)
    app.before_request(loop_guard(settings))
    app.before_request(guard(settings))
    app.after_request(allow_origins(settings))
    app.after_request(request_log.end)
    app.register_error_handler(Exception, error_reply)
    departures = Departures(Pings(app.wsgi_app))
    owned.callback(departures.close)
    counts = None if keeper is None else keeper.counts
    app.wsgi_app = Admission(departures, settings, counts)  # type: ignore[method-assign]  # Flask's documented way
    return app
