"""Serve an application with gunicorn: the master process, and what it does around its workers.

A thread serves a stream until it ends, so there are more threads than streams. (gevent crashes with
jupyter_client.) Each worker is a replica: the database is all that several of them share.

Signals to the master:

    SIGHUP                  the workers reload the client keys; nothing else changes
    SIGINT, SIGTERM         stop: open requests may finish within `drain_seconds`
    a second SIGINT         stop immediately

A stopping worker closes the application's services for at most `_CLOSE_SECONDS`, then exits. A part that is
not closed by then, such as a kernel that is still starting, ends because its parent has ended.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import AppImportError, HaltServer

from emulator.core.errors import EmulatorError
from emulator.settings.settings import Settings
from emulator.web.server.worker import Worker
from sandbox.errors import SandboxUnavailable

log = structlog.get_logger()

RESERVED_THREADS = 16
"""In addition to those of requests: for health, metrics and refusals."""
_KEEPALIVE_SECONDS = 75
_CLOSE_SECONDS = 1.0
_END_SECONDS = 1
"""How long requests that are ended at `drain_seconds` may take to send their error."""
_RETRY_SECONDS = 1.0
"""Between the attempts to replace a worker."""
_OTHER_DESCRIPTORS = 512
"""In addition to connections: databases, sandboxes, uploads, modules."""


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """``Server(settings, make_app, listener).run()`` serves until a signal stops it.

    Each worker calls ``make_app`` once, and ``when_ready(app, is_first_worker)`` when it accepts connections.
    """

    def __init__(
        self,
        settings: Settings,
        make_app: Callable[[], Any],
        listener: socket.socket,
        when_ready: Callable[[Any, bool], None] = lambda _app, _first: None,
    ) -> None:
        self._settings = settings
        self._make_app = make_app
        self._listener = listener.detach()  # gunicorn closes it
        self._when_ready = when_ready
        self._served = mmap.mmap(-1, 1)
        """Shared with the workers: whether any has ever served."""
        self._token, token = os.pipe()
        """Has one byte, which the first worker that serves takes."""
        os.write(token, b"1")
        os.close(token)
        super().__init__()

    @property
    def has_served(self) -> bool:
        return self._served[0] == 1

    def load_config(self) -> None:
        threads = self._settings.threads + self._settings.waiting_requests + RESERVED_THREADS
        options = {
            "bind": f"fd://{self._listener}",
            "worker_class": Worker,
            "workers": self._settings.workers,
            "threads": threads,
            "worker_connections": threads * 4,
            "keepalive": _KEEPALIVE_SECONDS,
            "timeout": 120,
            # The master waits longer than its worker, whose own limit `_after_fork` sets.
            "graceful_timeout": math.ceil(self._settings.drain_seconds + _CLOSE_SECONDS)
            + _END_SECONDS
            + 2,
            "proc_name": "tool-use-api-emulator",
            "loglevel": "warning",
            "errorlog": None,  # see `logs.configure`
            "control_socket_disable": True,
            "post_fork": self._after_fork,
            "child_exit": self._worker_died,
            "post_worker_init": self._worker_ready,
            "worker_exit": _exit_worker,
        }
        for name, value in options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """Make the application. A problem with settings or the sandbox is one line, without a traceback."""
        try:
            return self._make_app()
        except SandboxUnavailable as error:
            raise AppImportError(f"{error.reason}: {error.fix}") from error
        except (EmulatorError, OSError) as error:
            raise AppImportError(f"the proxy cannot start: {error}") from error

    def run(self) -> None:
        logging.getLogger("gunicorn.error").addFilter(_is_not_load_error)
        # A request may need a second connection, to its upstream.
        _allow_descriptors(
            self.cfg.worker_connections + self.cfg.threads + _OTHER_DESCRIPTORS,
            2 * self._settings.threads + _OTHER_DESCRIPTORS,
        )
        _Master(self).run()

    def _after_fork(self, _arbiter: Any, worker: Any) -> None:
        """Runs in the worker."""
        worker.client_seconds = self._settings.client_seconds
        worker.drain_seconds = self._settings.drain_seconds
        worker.cfg.set("graceful_timeout", math.ceil(worker.drain_seconds) + _END_SECONDS)

    def _worker_ready(self, worker: Any) -> None:
        """Runs in the worker."""
        self._served[0] = 1
        is_first = os.read(self._token, 1) != b""
        worker.descriptors = _descriptors_for_requests()
        worker.end_requests = worker.wsgi.extensions["disconnects"].end_requests
        reload = worker.wsgi.extensions["emulator"].reload_client_keys
        # Not in the handler itself, which may interrupt any statement of the main thread.
        start = partial(threading.Thread, target=reload, name="reload", daemon=True)
        signal.signal(signal.SIGHUP, lambda *_: start().start())
        if is_first or self._settings.workers > 1:
            self._when_ready(worker.wsgi, is_first)

    def _worker_died(self, _arbiter: Any, worker: Any) -> None:
        from emulator.core import metrics  # the master needs it only here

        metrics.process_died(worker.pid)


class _Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    def reap_workers(self) -> None:
        """A worker that cannot start ends the proxy only if none has served; otherwise it is tried again."""
        while True:
            workers = dict(self.WORKERS)
            try:
                super().reap_workers()
            except HaltServer as halt:
                if not self.app.has_served:
                    raise
                log.error("a worker could not start; it is tried again", reason=halt.reason)
                for pid in workers.keys() - self.WORKERS.keys():
                    workers[pid].tmp.close()
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def handle_int(self) -> None:
        """Stop gracefully, as for SIGTERM; `stop` then looks for a second Ctrl-C."""
        raise StopIteration

    def handle_hup(self) -> None:
        """Let the workers reload the client keys. They are not replaced: they have sandboxes and streams."""
        self.kill_workers(signal.SIGHUP)

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        if exit_status == self.APP_LOAD_ERROR:  # the worker has logged the reason
            self.stop()
            sys.exit(1)
        super().halt(reason, exit_status)


def _is_not_load_error(record: logging.LogRecord) -> bool:
    """Return False for gunicorn's line about a failed load, which adds nothing to the worker's own."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return arguments[-1:] != (Arbiter.APP_LOAD_ERROR,)


def _allow_descriptors(count: int, least: int) -> None:
    """Raise this process's limit of open files, as far as its user may (getrlimit(2)). Logs a limit below
    ``least``.

    Many systems start with 1,024 for the sake of select(2), which nothing here uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < count:
        with suppress(OSError, ValueError):  # a system may have a lower limit of its own (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if resource.RLIM_INFINITY != allowed < least:
        log.warning(
            "too few open files are allowed for the setting threads", allowed=allowed, needed=least
        )


def _descriptors_for_requests() -> float:
    """The number of files that this process may open for clients and upstreams: at least half of the free
    descriptors, since programs, kernels and the database need some too."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return math.inf
    free = allowed - _open_descriptors()
    return free - min(_OTHER_DESCRIPTORS, free // 2)


def _open_descriptors() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return 0


def _exit_worker(_arbiter: Any, worker: Any) -> None:
    """Close the services, then exit without joining threads: one may serve a stream that never ends."""
    app = getattr(worker, "wsgi", None)
    if app is None:
        return  # the application could not be loaded
    closing = threading.Thread(target=app.extensions["emulator"].close, daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if worker.booted else 1)
