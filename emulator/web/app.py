"""`create_app` builds the application: services, routes, and the middleware around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask

from emulator.hosted.hosted_tool import ToolResolver
from emulator.settings.settings import Settings
from emulator.storage.stores import PreparedStores
from emulator.upstream.interface import Upstream
from emulator.web.inspector.access import Access
from emulator.web.inspector.container_pages import add_containers
from emulator.web.inspector.fronts import Conversed
from emulator.web.inspector.playground import Playground
from emulator.web.inspector.playground_pages import add_playground
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import make_inspector
from emulator.web.inspector.status_page import add_status
from emulator.web.middleware.admission import Admission
from emulator.web.middleware.authorization import recognizer
from emulator.web.middleware.checks import API, Checks
from emulator.web.middleware.disconnects import Disconnects
from emulator.web.middleware.error_replies import error_reply
from emulator.web.middleware.limits import Limits
from emulator.web.middleware.recording import Recording
from emulator.web.middleware.request_body import BoundedRequest
from emulator.web.routes import (
    chat,
    containers,
    conversations,
    executions,
    files,
    health,
    messages,
    models,
    openapi,
    pass_through,
    responses,
    sessions,
)
from emulator.web.routes.uploads import read_upload
from emulator.web.services import Services, open_services
from sandbox.programs.server import ProgramServer

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine


def create_app(
    settings: Settings,
    *,
    upstream: Upstream | None = None,
    programs: ProgramServer | None = None,
    kernels: Callable[[str], KernelEngine] | None = None,
    hosted: ToolResolver | None = None,
    now: Callable[[], float] = time.time,
    run_folder: Path | None = None,
    prepared: PreparedStores | None = None,
) -> Flask:
    """Build the Flask application. Close its `Services`, in ``app.extensions["emulator"]``, at the end.

    ``upstream`` replaces every upstream in the settings; ``programs`` runs tool programs; ``kernels`` returns
    the engine for a container's memory limit; ``hosted`` finds the tools that the proxy runs;
    ``run_folder`` is the folder of this run, if it has one already; ``prepared`` are the stores, if they have
    been prepared.
    """
    services = open_services(
        settings, upstream, programs, kernels, hosted, now, run_folder, prepared
    )
    try:
        app = _Application(__name__, static_folder=None)
        app.request_class = BoundedRequest
        app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
        app.extensions["emulator"] = services
        recording = Recording(services.requests.traces, logs_bodies=settings.log_bodies)
        recognize = recognizer(settings, services.client_keys, services.now)
        checks = Checks(settings, recognize, Limits(settings, services.counters), recording)
        _add_api(app, services, checks)
        if settings.inspector != "off":
            _add_inspector(app, services, checks)
        openapi.add_routes(app)
        health.add_routes(
            app,
            services.pipeline.programs,
            services.reachability,
            services.kernel_counts,
            services.responses.stored,
            services.stores.database,
            settings,
        )
        app.before_request(checks.before)
        app.after_request(checks.after)
        app.register_error_handler(Exception, error_reply)
        disconnects = Disconnects()
        services.cleanup.callback(disconnects.close)
        app.extensions["disconnects"] = disconnects
        admission = Admission(app.wsgi_app, settings, disconnects, recording.record_refusal)
        # Flask documents this assignment as the way to add WSGI middleware.
        app.wsgi_app = admission  # type: ignore[method-assign]
    except BaseException:
        services.close()
        raise
    return app


class _Application(Flask):
    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: none of ours is asynchronous, and the base class inspects each at each call."""
        return func


def _add_api(app: Flask, services: Services, checks: Checks) -> None:
    """Add the API at ``/v1``; `doors` maps the other addresses that clients use to it."""
    settings, stores, pipeline = services.settings, services.stores, services.pipeline
    api = Blueprint("api", __name__)
    upload = partial(read_upload, stores.blobs.scratch, settings.max_file_bytes)
    chat.add_routes(api, pipeline, settings)
    models.add_routes(api, services.upstreams)
    conversations.add_routes(api, services.conversations)
    responses.add_routes(api, services.responses, settings, services.background)
    files.add_routes(api, stores.files, upload)
    containers.add_routes(api, services.interpreter, stores.files, upload)
    executions.add_routes(api, services.interpreter, settings, checks.begin_answer)
    sessions.add_routes(
        api,
        services.interpreter,
        services.background,
        stores.database,
        upload,
        checks.begin_answer,
        remembers=settings.remembers,
    )
    messages.add_routes(api, pipeline, services.threads, settings)
    pass_through.add_routes(api, services.upstreams, settings, checks.begin_answer)
    app.register_blueprint(api, url_prefix="/v1", name=API)


def _add_inspector(app: Flask, services: Services, checks: Checks) -> None:
    """Add the inspector's pages at ``/`` and ``/inspector``; `Access` decides who may read them."""
    settings, requests = services.settings, services.requests
    pages = Pages(settings)
    recognize = recognizer(settings, services.client_keys, services.now)
    access = Access(settings, recognize, services.stores.database)
    inspector = make_inspector(access, pages, requests.reader, checks.count_request)
    playground = Playground(Conversed(services.conversations, services.threads))
    add_playground(inspector, pages, playground, services.pipeline, settings, requests.reader)
    add_containers(inspector, pages, services.interpreter, services.approvals, requests.reader)
    add_status(
        inspector,
        pages,
        settings,
        services.upstreams,
        services.reachability,
        services.pipeline.programs,
        services.kernel_counts,
        requests.reader,
        services.mcp_problems,
    )
    app.register_blueprint(inspector)
