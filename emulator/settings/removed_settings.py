"""Names of settings that earlier versions had, and what to write instead.

A name without advice has no effect any more: it is reported and ignored in a file or a variable.
"""

from __future__ import annotations

from collections.abc import Mapping

REMOVED: Mapping[str, str] = {
    "store": "write database: the file is a new one, and postgresql://host/name replaces a Redis",
    "files_index": "write database = that PostgreSQL, beginning with postgresql://",
    "engines": "programs have one engine now: remove it",
    "warm_kernels": "",
    "recover_reasoning": "",
    "docker_host": "set the variable DOCKER_HOST",
    # Sizes and times that nobody changed: now constants next to what they limit.
    "breaker_seconds": "",
    "upstream_connect_seconds": "",
    "max_reply_chars": "",
    "ready_strict": "",
    "waiting_requests": "",
    "bodies_bytes": "",
    "hosted_calls": "",
    "program_calls": "",
    "interpreter_runs": "",
    "interpreter_fixes": "",
    "warm_interpreters": "",
    "max_files": "",
    "max_containers": "",
    "inspector_traces": "",
    "inspector_bytes": "",
    "inspector_seconds": "",
}


def advice(name: str) -> str:
    """What to write instead of a name that was removed; "" if it is unknown or has no effect."""
    text = REMOVED.get(name, "")
    return f"there is no such setting any more: {text}" if text else ""


def is_ignored(name: str) -> bool:
    return REMOVED.get(name) == ""
