"""The messages of a start: the address, the upstream, where data is stored, and a first request to try."""

from __future__ import annotations

import shlex

from emulator.core import addresses
from emulator.settings.redaction import shown
from emulator.settings.settings import Settings

CURL = """\
curl {url}/v1/chat/completions -H 'content-type: application/json'{key} -d '{{
  "model": {model},
  "messages": [{{"role": "user", "content": "What is the weather in London?"}}],
  "tools": [{{"type": "function", "function": {{
    "name": "get_weather", "description": "Get the current weather of a city.",
    "parameters": {{"type": "object", "required": ["location"],
      "properties": {{"location": {{"type": "string", "description": "City"}}}}}}}}}}]}}'"""

_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def serving(settings: Settings, upstream: str) -> str:
    """The line with the proxy's address; ``upstream`` describes the upstream in words."""
    everywhere = "" if addresses.is_loopback(settings.host) else f" (listening on {settings.host})"
    return f"Serving {url(settings)}/v1{everywhere} in front of {upstream}."


def stored(settings: Settings, *, is_kept: bool) -> str:
    """What survives the process, where it is stored, and for how long."""
    if not is_kept:
        return "Nothing is stored: all data is lost when the proxy stops."
    return (
        f"Stored: responses for {_duration(settings.response_seconds)} and programs for "
        f"{_duration(settings.store_seconds)} in {shown(settings.database)}; files until they expire or are "
        f"deleted in {shown(settings.files_dir)}."
    )


def inspector(settings: Settings, token: str = "") -> str:
    """The line with the inspector's address."""
    query = f"?token={token}" if token else ""
    return f"The inspector shows each request: {url(settings)}/{query}"


def first_request(settings: Settings, model: str) -> str:
    """A curl line to try. It contains no client key, because the output may be logged."""
    key = ' -H "authorization: Bearer $CLIENT_KEY"' if settings.wants_keys else ""
    # The upstream chose the model's name, and people paste this line into a shell.
    quoted = shlex.quote(
        '"' + "".join(c for c in model if c.isprintable() and c not in '"\\') + '"'
    )
    return CURL.format(url=url(settings), key=key, model=quoted[1:-1])


def url(settings: Settings) -> str:
    """The proxy's address as clients on this machine use it."""
    return f"http://{addresses.reachable_host(settings.host)}:{settings.port}"


def _duration(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= size and seconds % size == 0:
            number = int(seconds // size)
            return f"{number} {name}{'s' if number > 1 else ''}"
    return f"{seconds:g} seconds"
