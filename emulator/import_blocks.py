"""Modules that libraries import where they happen to be installed, and that a server has no use for.

An environment with the extras `chat` or `shared`, or one for development, has them; there they were 11 MiB of
each worker, 4 of the master and an eighth of the time to be ready.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

BLOCKED_MODULES = (
    "rich",  # structlog colours tracebacks with it: those of a server are lines of its log
    "uvicorn",  # sse-starlette asks it whether it ends: the server is gunicorn
    "openai._vendor.httpx_aiohttp",  # with aiohttp, for the SDK's asynchronous client
)


@contextmanager
def block_imports() -> Iterator[None]:
    """Let imports of `BLOCKED_MODULES` fail, as where they are not installed. To be entered before other imports."""
    names = [name for name in BLOCKED_MODULES if name not in sys.modules]
    # What the import system says of None: "a ModuleNotFoundError is raised".
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
