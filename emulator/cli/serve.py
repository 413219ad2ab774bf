"""The serve command: check and open everything that the settings name, then run gunicorn.

The slow imports happen after the port is bound, so that a port conflict is reported immediately.
"""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import SecretStr

from emulator.cli import start_messages
from emulator.cli.interrupts import close_on_signals
from emulator.core import logs
from emulator.core.client_keys import InvalidClientKeys
from emulator.core.client_keys import read as read_keys
from emulator.core.errors import EmulatorError
from emulator.core.run_folder import run_folder
from emulator.settings.configuration import Configuration
from emulator.settings.settings import Settings
from emulator.web.server.listening import CannotListen, listen

if TYPE_CHECKING:
    from flask import Flask

    from emulator.storage.stores import PreparedStores
    from emulator.web.services import Services

log = structlog.get_logger()

_MODELS_SECONDS = 2.0
"""How long the example request waits for the upstream to name a model."""


class CannotServe(Exception):
    """The server cannot start. ``code`` is the command's exit code: 2 for invalid settings."""

    def __init__(self, reason: str, code: int = 2) -> None:
        super().__init__(reason)
        self.code = code


def serve(configuration: Configuration) -> None:
    """Serve until a signal arrives. Raises `CannotServe`."""
    settings = configuration.settings
    _check_files(settings)
    try:
        listener = listen(settings.host, settings.port)
    except CannotListen as error:
        raise CannotServe(str(error), code=1) from error
    for note in configuration.notes:
        logs.show(note)
    token = _inspector_token(settings)
    key = settings.program_key.get_secret_value() or secrets.token_urlsafe(32)
    update: dict[str, Any] = {"port": listener.getsockname()[1], "program_key": SecretStr(key)}
    if token:
        update["inspector_key"] = SecretStr(token)
    settings = settings.model_copy(update=update)
    with ExitStack() as cleanup:
        close_on_signals(cleanup)  # until gunicorn's own handlers
        # Before the first metric is counted.
        folder = cleanup.enter_context(run_folder(counts_together=settings.workers > 1))
        # gunicorn forks, so everything that has threads or child processes starts in the worker.
        from emulator.web.server.master import Server

        if settings.local_model:
            settings = with_local_model(settings, cleanup)

        _check_served(settings)
        prepared = _prepare_stores(settings, folder)

        def on_ready(app: Flask, first: bool) -> None:
            if settings.workers > 1:
                log.info("a worker serves", pid=os.getpid())
            if first and settings.local_model:
                _prefill_opening(settings)
            if first:
                logs.show(start_messages.serving(settings, configuration.upstream))
                if settings.inspector != "off":
                    logs.show(start_messages.inspector(settings, token))
            threading.Thread(
                target=_start_worker,
                args=(app, settings, first),
                name="start",
                daemon=True,
            ).start()

        def make_app() -> Flask:
            from emulator.web.app import create_app

            return create_app(settings, run_folder=folder, prepared=prepared)

        if settings.workers > 1:
            # Several workers share the imported modules. A single worker imports them itself, so that the
            # master stays small.
            import emulator.web.app  # noqa: F401
        gc.collect()
        gc.freeze()  # the collector writes to each object it visits, which would unshare its memory page
        Server(settings, make_app, listener, on_ready).run()


def _start_worker(app: Flask, settings: Settings, first: bool) -> None:
    """Runs in the background once a worker accepts requests. The first worker prints what is stored, and an
    example request."""
    # Later, with all descriptors in use, an import would fail.
    import emulator.upstream.client  # noqa: F401
    from emulator.interpreter.engines import warn_of_place

    services: Services = app.extensions["emulator"]
    services.reachability.start_check()
    if first:
        for label, row in settings.mcp.items():
            if row.command and shutil.which(row.command) is None:
                log.warning("MCP server %s: its command %s is not on PATH", label, row.command)
        logs.show(start_messages.stored(settings, is_kept=services.stores.is_kept))
        model = services.reachability.model(_MODELS_SECONDS) or "any"
        logs.show(f"Try:\n\n{start_messages.first_request(settings, model)}")
        warn_of_place(settings)
    # A full collection stops all threads while it visits every object: 0.1 to 0.4 s with 1,000 streams, so it
    # is rare. Frozen objects, which live as long as the process anyway, are not visited again. The other two
    # collections visit few objects: 50,000 stopped all streams for 10 to 40 ms.
    gc.freeze()
    gc.set_threshold(500, 2, 1_000)


def _inspector_token(settings: Settings) -> str:
    """Return a key for the inspector of this run, or "" if its access is set."""
    has_keys = settings.wants_keys or settings.inspector_key.get_secret_value()
    return "" if has_keys or settings.inspector != "on" else secrets.token_hex(24)


def _check_files(settings: Settings) -> None:
    """Check the files that the settings name. Raises `CannotServe`."""
    if any(row.template or row.chat_template for row in settings.profiles):
        from emulator.rendering.custom_template import InvalidTemplate, check_templates

        try:
            check_templates(settings)
        except InvalidTemplate as error:
            raise CannotServe(str(error)) from error
    if settings.client_keys_file:
        try:
            read_keys(settings.client_keys_file)
        except InvalidClientKeys as error:
            raise CannotServe(f"client_keys_file: {error}") from error


def _check_served(settings: Settings) -> None:
    """Check that the MCP tools of ``[serve]`` are there and take what is sent. Raises `CannotServe`."""
    if not settings.serve.rows:
        return
    from emulator.hosted.report import examine, served_checks

    reports = examine(settings, {row.server for row in settings.serve.rows.values()})
    if wrong := [one for one in served_checks(settings, reports) if one.needed]:
        raise CannotServe("\n".join(f"{one.name}: {one.detail}" for one in wrong))
    for report in reports:
        if report.error:
            log.warning("[serve] is not checked: %s: %s", report.server.label, report.error)


def with_local_model(settings: Settings, cleanup: ExitStack) -> Settings:
    """Start the embedded model and return settings that use it as the upstream. ``cleanup`` stops it."""
    from emulator.upstream import local_model

    try:
        url = cleanup.enter_context(local_model.serve())
    except local_model.LocalModelError as error:
        raise CannotServe(str(error), code=1) from error
    return settings.model_copy(
        update={"base_url": url, "api_key": SecretStr("local"), "profile": "tiny"}
    )


def _prefill_opening(settings: Settings) -> None:
    """Let the embedded model process the text that starts every prompt, in the background."""
    from emulator.answering.ways.tiny import opening_messages
    from emulator.upstream import local_model

    opening = opening_messages(constrained=settings.grammar)
    threading.Thread(
        target=local_model.read_ahead, args=(settings.base_url, opening), daemon=True
    ).start()


def _prepare_stores(settings: Settings, folder: Path) -> PreparedStores:
    from emulator.database import open_database
    from emulator.storage.stores import prepare_stores
    from emulator.traces import ARCHIVE_FILE, Archive

    try:
        if settings.workers > 1:
            # Two workers that switch a file to WAL at the same time lock each other out.
            database = open_database(str(folder / ARCHIVE_FILE))
            Archive(database)  # makes the tables
            database.close()
        return prepare_stores(settings, folder)
    except (EmulatorError, OSError) as error:
        raise CannotServe(f"the proxy cannot start: {error}", code=1) from error
