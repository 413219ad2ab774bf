"""The servers that are compared, as commands: one process each, and as many threads where it uses any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.servers import THREADS

FLASK = "benchmarks.load.bare:app"
"""Passes bytes on: Flask and urllib3."""

Command = Callable[[int], list[str]]
"""Of a server on a port."""


@dataclass(frozen=True)
class Front:
    name: str
    app: str
    """What it serves."""
    carrier: str
    """What an open stream has of it."""
    command: Command


def _module(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


def _script(name: str, *words: str) -> list[str]:
    return [str(Path(sys.executable).with_name(name)), *words]


def gunicorn(worker: str) -> Command:
    return lambda port: _module(
        "gunicorn", FLASK, "-k", worker, "--workers", "1", "--threads", str(THREADS),
        "--worker-connections", str(4 * THREADS), "--keep-alive", "75", "--timeout", "120",
        "--bind", f"127.0.0.1:{port}", "--log-level", "warning",
    )  # fmt: skip


def granian(port: int) -> list[str]:
    return _script(
        "granian", "--interface", "wsgi", "--blocking-threads", str(THREADS),
        "--backpressure", str(THREADS), "--backlog", "2048", "--no-ws", "--log-level", "warning",
        "--host", "127.0.0.1", "--port", str(port), FLASK,
    )  # fmt: skip


def waitress(port: int) -> list[str]:
    return _script(
        "waitress-serve", f"--listen=127.0.0.1:{port}", f"--threads={THREADS}",
        f"--connection-limit={4 * THREADS}", "--backlog=2048", "--asyncore-use-poll", "--send-bytes=1", FLASK,
    )  # fmt: skip


def cheroot(port: int) -> list[str]:
    return _script(
        "cheroot", "--bind", f"127.0.0.1:{port}", "--threads", str(THREADS),
        "--max-threads", str(THREADS), "--request-queue-size", "2048", FLASK,
    )  # fmt: skip


def uvicorn(app: str) -> Command:
    return lambda port: _module(
        "uvicorn", app, "--host", "127.0.0.1", "--port", str(port), "--backlog", "2048",
        "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning",
    )  # fmt: skip


def hypercorn(app: str) -> Command:
    return lambda port: _module(
        "hypercorn", app, "--bind", f"127.0.0.1:{port}", "--backlog", "2048", "-k", "asyncio",
    )  # fmt: skip


THREAD = "a thread"
FRONTS = (
    Front("gunicorn, gthread", "Flask", THREAD, gunicorn("gthread")),
    Front("gunicorn, ours", "Flask", THREAD, gunicorn("emulator.web.server.worker.Worker")),
    Front("granian", "Flask", THREAD, granian),
    Front("waitress", "Flask", THREAD, waitress),
    Front("cheroot", "Flask", THREAD, cheroot),
    Front("uvicorn, a2wsgi", "Flask", "a thread and a task", uvicorn("benchmarks.fronts.asgi:app")),
    Front("hypercorn, a2wsgi", "Flask", "a thread and a task", hypercorn("benchmarks.fronts.asgi:app")),
    Front("uvicorn", "Starlette, aiohttp", "a task", uvicorn("benchmarks.fronts.relay:app")),
    Front("hypercorn", "Starlette, aiohttp", "a task", hypercorn("benchmarks.fronts.relay:app")),
)  # fmt: skip
"""The first is what the others are multiples of."""
