"""`create_app` makes the Flask application: what it serves, what it opens, who may ask.

The composition root: every long-lived part (store, engines, kernels, files) is opened here and closed here.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import structlog
from flask import Blueprint, Flask, Response, g, request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException

from emulator import departure, metrics
from emulator.answering.native.probe import Probe
from emulator.answering.pipeline import Pipeline
from emulator.anthropic.writer import error_body
from emulator.engines import InterpreterEngines, open_engines
from emulator.errors import (
    BadRequest,
    ClientLeft,
    EmulatorError,
    LoopDetected,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    Unauthorized,
)
from emulator.events import new_id
from emulator.interpreter.interpreter import Interpreter
from emulator.responses.background import BackgroundResponses
from emulator.responses.conversations import Conversations
from emulator.settings import Settings
from emulator.storage.blob_store import open_blob_store
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.key_value import open_store
from emulator.storage.sweeper import Sweeper
from emulator.upstream import loops
from emulator.upstream.interface import KeyedClient, OneUpstream
from emulator.upstream.reachability import Reachability
from emulator.upstream.routes import Routes
from emulator.upstream.upstreams import Upstreams
from emulator.web import openapi
from emulator.web.admission import Admission
from emulator.web.browser_guard import guard
from emulator.web.departures import Departures
from emulator.web.limits import add_limits
from emulator.web.routes import (
    chat,
    containers,
    conversations,
    executions,
    files,
    messages,
    passed_on,
    responses,
)
from emulator.web.routes.messages import speaks_anthropic
from emulator.web.routes.reply import json_reply
from emulator.web.routes.upload import read_upload
from emulator.web.warm_up import warm_up
from emulator.web.worker import BODY_ERRORS
from sandbox.engine import Engine

if TYPE_CHECKING:
    from sandbox.kernel import KernelEngine

log = structlog.get_logger()


def create_app(
    settings: Settings,
    *,
    upstream: OneUpstream | None = None,
    engines: Sequence[Engine] | None = None,
    kernels: Callable[[str], KernelEngine] | None = None,
    now: Callable[[], float] = time.time,
) -> Flask:
    """The application. What it opened itself, ``app.extensions["emulator"].close()`` closes.

    ``upstream`` answers for all that the settings name; ``engines`` run tool programs; ``kernels`` gives
    the engine for a container's memory limit.
    """
    owned = ExitStack()
    upstreams = Upstreams(settings, None if upstream is None else lambda _: upstream)
    owned.callback(upstreams.close)
    if engines is None:
        engines = open_engines(settings)
        for engine in engines:
            owned.callback(engine.close)

    store = open_store(settings.store, settings.store_seconds)
    if store is not None:
        owned.callback(store.close)
    programs = store if settings.programs == "on" else None

    folder = open_blob_store(settings.files_dir, now=now)
    owned.callback(folder.close)
    uploaded = Files(folder, settings)
    stored_containers = Containers(folder, uploaded, settings)
    if kernels is None:
        kernels = opened = InterpreterEngines(settings)
        owned.callback(opened.close)
        if settings.interpreter == "on":
            opened.warm_up()
    interpreter = Interpreter(stored_containers, kernels, settings)
    owned.callback(interpreter.close)
    owned.callback(Sweeper(interpreter.touch_busy, uploaded.sweep, interpreter.sweep).close)

    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.extensions["emulator"] = owned
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
    read = partial(read_upload, folder.scratch, settings.max_file_bytes)
    api = _api(settings)
    add_limits(app, api, settings)
    chat.add_routes(api, pipeline, upstreams, settings)
    background = BackgroundResponses(settings.threads, settings.answer_seconds)
    owned.callback(background.close)
    talks = Conversations(store, settings.response_seconds)
    conversations.add_routes(api, talks)
    responses.add_routes(api, pipeline, settings, store, background, talks)
    files.add_routes(api, uploaded, read)
    containers.add_routes(api, interpreter, uploaded, read)
    executions.add_routes(api, interpreter, settings)
    messages.add_routes(api, pipeline, settings)
    passed_on.add_routes(api, upstreams, settings)
    app.register_blueprint(api, url_prefix="/v1", name="v1")
    app.register_blueprint(api, name="bare")  # clients whose base_url lacks /v1

    openapi.add_routes(app)

    @app.get("/healthz")
    def healthz() -> Response:
        return json_reply({"status": "ok", "engines": [engine.name for engine in engines]})

    @app.get("/readyz")
    def readyz() -> Response:
        if problems := reachability.problems():
            return json_reply({"status": "an upstream does not answer", "upstreams": problems}, 503)
        return json_reply({"status": "ready"})

    @app.get("/metrics")
    def metrics_page() -> Response:
        return Response(generate_latest(), content_type=CONTENT_TYPE_LATEST)

    @app.after_request
    def allow_origin(response: Response) -> Response:
        origin = request.headers.get("origin", "")
        if origin and {origin, "*"} & set(settings.cors_origins):
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-allow-methods"] = "GET, POST, DELETE, OPTIONS"
            response.headers["access-control-allow-headers"] = "authorization, content-type, *"
            response.headers["access-control-expose-headers"] = "*"
            response.headers["access-control-max-age"] = "600"
        response.headers.add("vary", "origin")
        return response

    app.before_request(_begin)
    app.before_request(_loop_guard(settings))
    app.before_request(guard(settings))
    app.after_request(_end)
    app.register_error_handler(Exception, _failed)
    departures = Departures(app.wsgi_app)
    owned.callback(departures.close)
    app.wsgi_app = Admission(departures, settings)  # type: ignore[method-assign]  # Flask's documented way
    return app


def _api(settings: Settings) -> Blueprint:
    """The routes that want a key; those of each API are added to it."""
    api = Blueprint("api", __name__)
    keys = [key.get_secret_value().encode() for key in settings.client_keys]
    own_keys = any(target.settings.pass_client_key for target in Routes(settings).targets)

    @api.before_request
    def authorize() -> None:
        if request.method == "OPTIONS":
            return  # a browser's preflight carries no key
        presented = _key().encode()
        # Every key is compared, so that the time tells neither which one fits nor how far.
        if keys and not sum(hmac.compare_digest(presented, key) for key in keys):
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        # What is kept for a client is for those who hold its key; without keys there is one client.
        name = hashlib.sha256(presented).hexdigest()[:32]
        g.client = KeyedClient(name, presented.decode()) if own_keys else name if keys else ""

    return api


def _key() -> str:
    """The client's key, as OpenAI's clients send it or as Anthropic's do."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (bearer or request.headers.get("x-api-key", "")).strip()


def _begin() -> None:
    g.began = time.perf_counter()
    g.request_id = new_id("req_")
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def _loop_guard(settings: Settings) -> Callable[[], None]:
    """Refuses a request that has come through this proxy before, and notes where each has been."""
    own = secrets.token_hex(8)
    named = [f"upstreams.base_url {row.base_url}" for row in settings.upstreams]
    setting = " or ".join(named) or f"base_url {settings.base_url}"

    def check() -> None:
        if loops.is_loop(request.headers.get(loops.HEADER, ""), own):
            raise LoopDetected(
                f"This request has been here before: the setting {setting} leads back to this proxy. "
                "It must name the model's own server.",
                code="loop_detected",
            )

    return check


def _end(response: Response) -> Response:
    response.headers["x-request-id"] = g.request_id
    if speaks_anthropic():
        response.headers["request-id"] = g.request_id
    seconds = time.perf_counter() - g.began
    # The rule, not the path: what clients make up must not become labels.
    rule = request.url_rule.rule if request.url_rule else "unknown"
    metrics.REQUESTS.labels(rule, str(response.status_code)).inc()
    metrics.SECONDS.observe(seconds)
    log.info(
        "request",
        method=request.method,
        path=request.path,
        status=response.status_code,
        ms=round(1000 * seconds, 1),
    )
    return response


def _failed(error: Exception) -> Response:
    """Every error in OpenAI's shape, or in Anthropic's for those who speak that."""
    client = departure.current.get()
    if client is not None and client.left:
        # Whatever has failed was stopped for that.
        error = ClientLeft("The client has left.")
    elif isinstance(error, HTTPException):
        kinds = {404: NotFound, 405: MethodNotAllowed, 413: TooLarge}
        kind = kinds.get(error.code or 500, BadRequest)
        error = kind(f"{request.method} {request.path}: {error.description}")
    elif isinstance(error, BODY_ERRORS):
        error = BadRequest(f"The request's body cannot be read: {error}")
    elif not isinstance(error, EmulatorError):
        log.error("request failed", exc_info=error)
        error = EmulatorError("The proxy failed; its log says why.")
    if error.status >= 500:
        log.warning("failed", reason=error.message, code=error.code)
    body = error_body(error, g.request_id) if speaks_anthropic() else error.body()
    response = json_reply(body, error.status)
    response.headers.update(error.headers)
    return response
