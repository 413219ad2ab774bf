"""`/healthz`, `/readyz` and `/metrics`: for operators. They require no key.

`/metrics` names clients only to a request with the operator's key.
"""

from __future__ import annotations

from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST

from emulator.core import metrics
from emulator.database import Database
from emulator.fronts.responses.stored import StoredResponses
from emulator.settings.settings import Settings
from emulator.upstream.reachability import Reachability
from emulator.web.middleware.authorization import is_operators, presented_key
from emulator.web.middleware.measuring import KernelCounts
from emulator.web.routes.replies import json_reply
from sandbox.programs.server import ProgramServer


def add_routes(
    app: Flask,
    programs: ProgramServer,
    reachability: Reachability,
    kernels: KernelCounts,
    stored: StoredResponses,
    database: Database,
    settings: Settings,
) -> None:
    @app.get("/healthz")
    def healthz() -> Response:
        return json_reply({"status": "ok", "programs": "off" if programs.problem else "on"})

    @app.get("/readyz")
    def readyz() -> Response:
        if not database.has_answered():
            return json_reply({"status": "the database has not answered yet"}, 503)
        problems = reachability.problems()
        if problems and not reachability.can_serve(problems):
            return json_reply({"status": "an upstream does not answer", "upstreams": problems}, 503)
        servers = {url: server.name for url, server in reachability.servers.items()}
        details = {"servers": servers, "upstreams": problems, "not_stored": stored.problem}
        return json_reply({"status": "ready"} | {n: found for n, found in details.items() if found})

    @app.get("/metrics")
    def metrics_page() -> Response:
        kernels.count()
        page = metrics.page(names_clients=is_operators(presented_key(request.headers), settings))
        return Response(page, content_type=CONTENT_TYPE_LATEST)
