"""The command that serves: what the settings name is checked and opened, then gunicorn runs.

What takes long to import is imported once the port is known to be free.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from emulator import start_messages
from emulator.client_keys import ClientKeysUnusable
from emulator.client_keys import read as read_keys
from emulator.configuration import Configuration
from emulator.settings import Settings
from emulator.web.server import garbage
from emulator.web.server.listening import CannotListen, listen

if TYPE_CHECKING:
    from flask import Flask

    from emulator.web.server.keeper import Keeper
    from emulator.web.services import Services

log = structlog.get_logger()

_MODELS_SECONDS = 2.0
"""How long the line to try waits for the name of a model that there is."""

Say = Callable[..., None]
"""Tells lines to people."""


class CannotServe(Exception):
    """A line that tells why, and the command's exit code: 2 for settings that make no sense."""

    def __init__(self, line: str, code: int = 2) -> None:
        super().__init__(line)
        self.code = code


def serve(made: Configuration, say: Say) -> None:
    """Serve until a signal comes. Raises `CannotServe`."""
    settings = made.settings
    _check_files(settings)
    try:
        listener = listen(settings.host, settings.port)
    except CannotListen as error:
        raise CannotServe(str(error), code=1) from error
    say(*made.notes)
    settings = settings.model_copy(update={"port": listener.getsockname()[1]})
    with ExitStack() as running:
        folder = _run_folder(settings, running)
        # gunicorn forks: everything with threads or child processes starts in the worker.
        garbage.begin()
        from emulator.web.server.master import Server

        if settings.local_model:
            settings = _with_local_model(settings, running)
        served, keeper = _shared(settings, folder)

        def ready(app: Flask, first: bool) -> None:
            if settings.workers > 1:
                log.info("a worker serves", pid=os.getpid())
            if first and settings.local_model:
                _read_ahead(settings)
            if first:
                say(
                    start_messages.serving(settings, made.upstream),
                    start_messages.inspector(settings),
                    start_messages.kept(settings),
                    start_messages.left_behind(settings, Path.home()),
                )
            begin = threading.Thread(
                target=_begin, args=(app, settings, say, first), name="start", daemon=True
            )
            begin.start()

        def make_app() -> Flask:
            from emulator.web.app import create_app

            return create_app(served, keeper=keeper)

        if settings.workers > 1:
            # One worker imports it itself: the master needs none of it, and what either writes to is copied.
            import emulator.web.app  # noqa: F401
        gc.collect()
        gc.freeze()  # a collector writes to all that it looks at, and what is written to is shared no more
        Server(served, make_app, listener, ready, keeper).run()


def _begin(app: Flask, settings: Settings, say: Say, first: bool) -> None:
    """What a worker does when it listens; the ``first`` one also tells what to try."""
    services: Services = app.extensions["emulator"]
    services.reachability.begin()
    if first:
        model = services.reachability.model(_MODELS_SECONDS) or "any"
        say("Try:\n")
        print(start_messages.first_request(settings, model), flush=True)
    if settings.warm_kernels:
        services.warm_up()
    garbage.settle()


def _check_files(settings: Settings) -> None:
    """Raises `CannotServe` with what is wrong with the files that the settings name."""
    if any(row.template for row in settings.profiles):
        from emulator.answering.custom_template import InvalidTemplate, check_templates

        try:
            check_templates(settings)
        except InvalidTemplate as error:
            raise CannotServe(str(error)) from error
    if settings.client_keys_file:
        try:
            read_keys(settings.client_keys_file)
        except ClientKeysUnusable as error:
            raise CannotServe(f"client_keys_file: {error}") from error


def _with_local_model(settings: Settings, running: ExitStack) -> Settings:
    """The settings with the embedded model for an upstream; it ends with ``running``."""
    from pydantic import SecretStr

    from emulator.upstream import local_model

    try:
        url = running.enter_context(local_model.serve())
    except local_model.LocalModelError as error:
        raise CannotServe(str(error), code=1) from error
    return settings.model_copy(
        update={"base_url": url, "api_key": SecretStr("local"), "profile": "tiny"}
    )


def _read_ahead(settings: Settings) -> None:
    """Let the embedded model begin with what every prompt begins with, beside all else."""
    from emulator.answering.tiny.turn import opening_messages
    from emulator.upstream import local_model

    threading.Thread(
        target=local_model.read_ahead, args=(settings.base_url, opening_messages()), daemon=True
    ).start()


def _run_folder(settings: Settings, running: ExitStack) -> Path | None:
    """What several workers have together for this run; to be made before anything is counted."""
    if settings.workers == 1:
        return None
    from emulator.shared.run_folder import run_folder

    return running.enter_context(run_folder())


def _shared(settings: Settings, folder: Path | None) -> tuple[Settings, Keeper | None]:
    """The settings of each worker, and the keeper of several."""
    if folder is None:
        return settings, None
    from emulator.storage.for_workers import shared_places
    from emulator.web.server.keeper import Keeper

    served = shared_places(settings, folder)
    return served, Keeper(served, folder)
