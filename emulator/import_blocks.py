"""Modules that libraries import if they find them installed, and that a server never uses.

Environments with the extras `chat` or `shared`, and development environments, contain them. Importing them
there costs 11 MiB in each worker, 4 MiB in the master, and an eighth of the start-up time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

BLOCKED_MODULES = (
    "rich",  # structlog colours tracebacks with it; a server writes tracebacks as log lines
    "uvicorn",  # sse-starlette asks it whether it is shutting down; the server here is gunicorn
    "openai._vendor.httpx_aiohttp",  # imports aiohttp, for the SDK's asynchronous client
)


@contextmanager
def block_imports() -> Iterator[None]:
    """Make imports of `BLOCKED_MODULES` fail as if they were not installed. Enter it before other imports."""
    names = [name for name in BLOCKED_MODULES if name not in sys.modules]
    # The import system raises ModuleNotFoundError for a module that is None in sys.modules.
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
