"""The proxy: `create_app` makes the Flask application, `python app.py` serves it.

python app.py [--api-key KEY] [--base-url URL] [--port 8001]
python app.py doctor
"""

from __future__ import annotations

import hashlib
import hmac
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import structlog
from flask import Blueprint, Flask, Response, g, request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import SecretStr, ValidationError
from werkzeug.exceptions import HTTPException

from emulator import logs, metrics
from emulator.containers import Containers
from emulator.engines import InterpreterEngines, open_engines
from emulator.errors import (
    BadRequest,
    EmulatorError,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    Unauthorized,
)
from emulator.events import new_id
from emulator.files import Files
from emulator.folder import open_folder
from emulator.interpreter import Interpreter
from emulator.pipeline import Pipeline
from emulator.routes import chat, containers, executions, files, responses
from emulator.routes.reply import json_reply
from emulator.routes.upload import read_upload
from emulator.settings import Settings, from_command_line
from emulator.store import open_store
from emulator.sweeper import Sweeper
from emulator.upstream import ModelList, OpenAIUpstream, Upstream
from sandbox.engine import Engine
from sandbox.kernel import KernelEngine

log = structlog.get_logger()


def create_app(
    settings: Settings,
    *,
    upstream: Upstream | None = None,
    engines: Sequence[Engine] | None = None,
    kernels: Callable[[str], KernelEngine] | None = None,
    now: Callable[[], float] = time.time,
) -> Flask:
    """The application. What it opened itself, ``app.extensions["emulator"].close()`` closes.

    ``engines`` run tool programs; ``kernels`` gives the engine for a container's memory limit.
    """
    owned = ExitStack()
    if upstream is None:
        upstream = OpenAIUpstream(settings)
        owned.callback(upstream.close)
    if engines is None:
        engines = open_engines(settings)
        for engine in engines:
            owned.callback(engine.close)

    store = open_store(settings.store, settings.store_seconds)
    if store is not None:
        owned.callback(store.close)
    programs = store if settings.programs == "on" else None

    folder = open_folder(settings.files_dir, now=now)
    owned.callback(folder.close)
    uploaded = Files(folder, settings)
    kept = Containers(
        folder,
        uploaded,
        settings,
        on_gone=lambda gone: interpreter.end(gone),  # noqa: PLW0108 - each of them knows the other
    )
    if kernels is None:
        kernels = opened = InterpreterEngines(settings)
        owned.callback(opened.close)
        if settings.interpreter == "on":
            opened.warm_up()
    interpreter = Interpreter(kept, kernels, settings)
    owned.callback(interpreter.close)
    owned.callback(Sweeper(interpreter.touch_busy, uploaded.sweep, kept.sweep).close)

    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.extensions["emulator"] = owned
    pipeline = Pipeline(settings, upstream, engines, programs, interpreter, uploaded)
    read = partial(read_upload, folder.scratch, settings.max_file_bytes)
    api = _api(settings)
    chat.add_routes(api, pipeline, ModelList(upstream), settings)
    responses.add_routes(api, pipeline, settings, store)
    files.add_routes(api, uploaded, read)
    containers.add_routes(api, kept, uploaded, read)
    executions.add_routes(api, interpreter, settings)
    app.register_blueprint(api, url_prefix="/v1", name="v1")
    app.register_blueprint(api, name="bare")  # clients whose base_url lacks /v1

    @app.get("/healthz")
    def healthz() -> Response:
        return json_reply({"status": "ok", "engines": [engine.name for engine in engines]})

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
    app.after_request(_end)
    app.register_error_handler(Exception, _failed)
    return app


def _api(settings: Settings) -> Blueprint:
    """The routes that want a key; those of each API are added to it."""
    api = Blueprint("api", __name__)
    keys = [key.get_secret_value().encode() for key in settings.client_keys]

    @api.before_request
    def authorize() -> None:
        if request.method == "OPTIONS":
            return  # a browser's preflight carries no key
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip().encode()
        # Every key is compared, so that the time tells neither which one fits nor how far.
        if keys and not sum(hmac.compare_digest(given, key) for key in keys):
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        # What is kept for a client is for those who hold its key; without keys there is one client.
        g.client = hashlib.sha256(given).hexdigest()[:32] if keys else ""

    return api


def _begin() -> None:
    g.began = time.perf_counter()
    g.request_id = new_id("req_")
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def _end(response: Response) -> Response:
    response.headers["x-request-id"] = g.request_id
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
    """Every error in OpenAI's shape."""
    if isinstance(error, HTTPException):
        kinds = {404: NotFound, 405: MethodNotAllowed, 413: TooLarge}
        kind = kinds.get(error.code or 500, BadRequest)
        error = kind(f"{request.method} {request.path}: {error.description}")
    elif not isinstance(error, EmulatorError):
        log.error("request failed", exc_info=error)
        error = EmulatorError("The proxy failed; its log says why.")
    if error.status >= 500:
        log.warning("failed", reason=error.message, code=error.code)
    response = json_reply(error.body(), error.status)
    response.headers.update(error.headers)
    return response


CURL = """\
curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
  "model": "{model}",
  "messages": [{{"role": "user", "content": "What is the weather in London?"}}],
  "tools": [{{"type": "function", "function": {{
    "name": "get_weather", "description": "Get the current weather of a city.",
    "parameters": {{"type": "object", "required": ["location"],
      "properties": {{"location": {{"type": "string", "description": "City"}}}}}}}}}}]}}'"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the settings, start what they ask for, serve until a signal comes."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    examining = given[:1] == ["doctor"]
    try:
        settings = from_command_line(given[1:] if examining else given)
    except ValidationError as error:
        sys.exit("\n".join(_complaint(detail) for detail in error.errors()))
    logs.configure(settings.log_level)
    if examining:
        from emulator import doctor

        sys.exit(doctor.main(settings))
    # gunicorn forks: everything with threads or child processes starts in the worker.
    from emulator.server import Server

    with ExitStack() as running:
        model = "any"
        if settings.local_model:
            from emulator import local_model

            url = running.enter_context(local_model.serve())
            model = local_model.MODEL_NAME
            settings = settings.model_copy(
                update={"base_url": url, "api_key": SecretStr("local"), "profile": "tiny"}
            )
        here = f"http://{settings.host}:{settings.port}"
        print(f"Serving {here}/v1 in front of {settings.base_url}. Try:\n", file=sys.stderr)
        print(CURL.format(url=here, model=model), flush=True)
        Server(settings, lambda: create_app(settings)).run()


def _complaint(detail: object) -> str:
    assert isinstance(detail, dict)
    place = ".".join(str(part) for part in detail["loc"])
    return f"{'--' + place.replace('_', '-') + ': ' if place else ''}{detail['msg']}"


if __name__ == "__main__":
    main()
