"""As many open files as the server's connections need. Knows nothing of what they are for."""

from __future__ import annotations

import resource
from contextlib import suppress

_OTHERS = 512
"""Beside connections: databases, sandboxes, uploads, modules."""


def allow(connections: int) -> None:
    """Raise this process's own limit for so many connections, as far as its user may (getrlimit(2)).

    Many systems begin with 1,024 for the sake of select(2), which nothing here uses; a stream takes two.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHERS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a system may have a lower limit of its own (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
