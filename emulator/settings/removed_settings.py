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


NEVER: Mapping[str, str] = {
    "model": "clients name the model in each request; `aliases` and [[upstreams]] give it other names",
    "url": "write base_url",
    "api_base": "write base_url",
    "key": "write api_key",
    "print": "write the agent's own flags after --",
}
"""Names that users expect and that no version had."""


def advice(name: str) -> str:
    """What to write instead of a name that was removed or never was; "" if it has no effect or is unknown."""
    if text := REMOVED.get(name, ""):
        return f"there is no such setting any more: {text}"
    return f"there is no such setting: {text}" if (text := NEVER.get(name, "")) else ""


def is_ignored(name: str) -> bool:
    return REMOVED.get(name) == ""
