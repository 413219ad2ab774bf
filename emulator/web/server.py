"""Serve an app with gunicorn's gthread worker.

gevent crashes with jupyter_client. A thread serves one open stream, so there are more threads than streams
to hold. One worker process: the sandboxes and the warm kernels belong to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication

from emulator.settings import Settings
from emulator.web.admission import RESERVED_THREADS
from emulator.web.worker import worker_class

_IDLE_SECONDS = 75


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """``Server(settings, make_app).run()`` serves until a signal ends it."""

    def __init__(self, settings: Settings, make_app: Callable[[], Any]) -> None:
        self._settings = settings
        self._make_app = make_app
        super().__init__()

    def load_config(self) -> None:
        threads = self._settings.threads + self._settings.waiting_requests + RESERVED_THREADS
        options = {
            "bind": f"{self._settings.host}:{self._settings.port}",
            "worker_class": worker_class(self._settings.client_seconds),
            "workers": 1,
            "threads": threads,
            "worker_connections": threads * 4,
            "keepalive": _IDLE_SECONDS,
            "timeout": 120,
            "graceful_timeout": 5,
            "proc_name": "tool-use-api-emulator",
            "loglevel": "warning",
            "control_socket_disable": True,
            "worker_exit": _close,
        }
        for name, value in options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        return self._make_app()


def _close(_arbiter: Any, worker: Any) -> None:
    """Close what the app opened; a worker that did not come up has none."""
    app = getattr(worker, "wsgi", None)
    if app is not None:
        app.extensions["emulator"].close()
