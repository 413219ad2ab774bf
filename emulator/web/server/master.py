"""Serve an app with gunicorn's gthread worker, from an open socket to a clean end.

gevent crashes with jupyter_client. A thread serves one open stream, so there are more threads than streams
to hold. One worker process has all in it; several share a keeper
(`emulator.web.server.keeper`), which the master starts before them and ends after them.

SIGHUP reads the client keys anew and changes nothing else.

The end: the first Ctrl-C (or SIGTERM) lets open requests end, for `drain_seconds` at most; a second Ctrl-C
does not wait. Then the worker closes what the app opened, for as long as `_CLOSE_SECONDS`, and leaves:
what is not closed by then (a kernel that is still starting) ends with its parent.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import AppImportError

from emulator.errors import EmulatorError
from emulator.settings import Settings
from emulator.web.server import descriptors
from emulator.web.server.balance import CONNECTIONS, Balance
from emulator.web.server.worker import worker_class
from sandbox import cores
from sandbox.errors import SandboxUnavailable

if TYPE_CHECKING:
    from emulator.web.server.keeper import Keeper

RESERVED_THREADS = 16
"""Beside those of requests: for health, metrics and refusals."""
_IDLE_SECONDS = 75
_CLOSE_SECONDS = 1.0


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """``Server(settings, make_app, listener).run()`` serves until a signal ends it.

    ``when_ready`` is called in each worker, when the app is there and connections are taken; it is told
    whether this is the first one. ``keeper`` is that of several workers.
    """

    def __init__(
        self,
        settings: Settings,
        make_app: Callable[[], Any],
        listener: socket.socket,
        when_ready: Callable[[Any, bool], None] = lambda _app, _first: None,
        keeper: Keeper | None = None,
    ) -> None:
        self._settings = settings
        self._make_app = make_app
        self._listener = listener.detach()  # gunicorn closes it
        self._when_ready = when_ready
        self.keeper = keeper
        super().__init__()

    def load_config(self) -> None:
        threads = self._settings.threads + self._settings.waiting_requests + RESERVED_THREADS
        options = {
            "bind": f"fd://{self._listener}",
            "worker_class": worker_class(self._settings.client_seconds),
            "workers": self._settings.workers,
            "threads": threads,
            "worker_connections": threads * 4,
            "keepalive": _IDLE_SECONDS,
            "timeout": 120,
            # The master waits longer than its worker: see `_begin`.
            "graceful_timeout": int(self._settings.drain_seconds + _CLOSE_SECONDS + 2),
            "proc_name": "tool-use-api-emulator",
            "loglevel": "warning",
            "control_socket_disable": True,
            "pre_fork": self._prepare,
            "post_fork": self._begin,
            "child_exit": self._died,
            "post_worker_init": self._ready,
            "worker_exit": _end,
        }
        for name, value in options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """The app; what keeps it from being made is told in a line, without a traceback."""
        try:
            return self._make_app()
        except SandboxUnavailable as error:
            raise AppImportError(f"{error.reason}: {error.fix}") from error
        except (EmulatorError, OSError) as error:
            raise AppImportError(f"the proxy cannot start: {error}") from error

    def run(self) -> None:
        logging.getLogger("gunicorn.error").addFilter(_is_news)
        # Each request that is served may have a connection to its upstream.
        descriptors.allow(self.cfg.worker_connections + self.cfg.threads)
        _Master(self).run()

    def _prepare(self, arbiter: Any, worker: Any) -> None:
        if self.keeper is not None:
            taken = {other.cell for other in arbiter.WORKERS.values()}
            worker.cell = self.keeper.counts.free_cell(taken)

    def _died(self, _arbiter: Any, worker: Any) -> None:
        from emulator import metrics  # what workers import the master does without

        metrics.process_died(worker.pid)
        if self.keeper is not None:
            self.keeper.counts.clear(worker.cell)

    def _begin(self, _arbiter: Any, worker: Any) -> None:
        if self.keeper is not None:
            self.keeper.counts.cell = worker.cell
            cores.pin_to_core(worker.cell, self._settings.workers)
            worker.balance = Balance(self.keeper.counts.load(CONNECTIONS))
        worker.cfg.set("graceful_timeout", int(self._settings.drain_seconds))

    def _ready(self, worker: Any) -> None:
        reload = worker.wsgi.extensions["emulator"].reload_client_keys
        # Not in the handler itself, which may interrupt any statement of the main thread.
        start = partial(threading.Thread, target=reload, name="reload", daemon=True)
        signal.signal(signal.SIGHUP, lambda *_: start().start())
        if worker.age == 1 or self.keeper is not None:
            self._when_ready(worker.wsgi, worker.age == 1)


class _Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    def manage_workers(self) -> None:
        if self.app.keeper is not None:
            self.app.keeper.start(self)
        super().manage_workers()

    def reap_workers(self) -> None:
        if self.app.keeper is not None:
            self.app.keeper.reap()  # before the base class claims it as a child that is unknown
        super().reap_workers()

    def stop(self, graceful: bool = True) -> None:
        super().stop(graceful)
        if self.app.keeper is not None:
            self.app.keeper.stop()

    def handle_int(self) -> None:
        """Ctrl-C is no harder than SIGTERM; while workers end, `stop` looks out for a second one."""
        raise StopIteration

    def handle_hup(self) -> None:
        """Client keys are read anew by the worker, which stays: it has sandboxes, and its streams go on."""
        self.kill_workers(signal.SIGHUP)

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        if exit_status == self.APP_LOAD_ERROR:  # the worker has said what it is
            self.stop()
            sys.exit(1)
        super().halt(reason, exit_status)


def _is_news(record: logging.LogRecord) -> bool:
    """All but that a worker could not load the app, which has been told in better words."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return arguments[-1:] != (Arbiter.APP_LOAD_ERROR,)


def _end(_arbiter: Any, worker: Any) -> None:
    """Close what the app opened, and leave: a thread that serves a stream would hold up the end for
    ever.
    """
    app = getattr(worker, "wsgi", None)
    if app is None:
        return  # it did not come up
    closing = threading.Thread(target=app.extensions["emulator"].close, daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if worker.booted else 1)
