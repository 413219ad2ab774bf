"""What the start tells: where the proxy serves and for whom, what is kept, a first request to try."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import urlsplit

from emulator import addresses
from emulator.settings import Settings
from emulator.settings_sources import APPLICATION

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
    """Where, and before whom: ``upstream`` says so in words."""
    everywhere = "" if addresses.is_loopback(settings.host) else f" (listening on {settings.host})"
    return f"Serving {url(settings)}/v1{everywhere} in front of {upstream}."


def kept(settings: Settings) -> str:
    """What outlives the process, where, and for how long."""
    told = []
    if settings.store != ":memory:":
        told.append(
            f"responses for {_duration(settings.response_seconds)} and programs for "
            f"{_duration(settings.store_seconds)} in {_place(settings.store)}"
        )
    if settings.files_dir != ":temporary:":
        told.append(f"files until they expire or are deleted in {_place(settings.files_dir)}")
    return f"Kept: {'; '.join(told)}." if told else "Nothing is kept when this ends."


def inspector(settings: Settings) -> str:
    """Where requests can be looked at; "" where they are not recorded."""
    return (
        f"The inspector shows each request: {url(settings)}/" if settings.inspector == "on" else ""
    )


def left_behind(settings: Settings, home: Path) -> str:
    """What versions before this one kept elsewhere, and is no longer found; "" if nothing."""
    old, new = home / ".cache" / APPLICATION, Path(settings.store).expanduser().parent
    if new.name == APPLICATION and (old / "programs.sqlite").exists() and not new.exists():
        return f"What an older version kept is in {old}; to go on with it: mv {old} {new}"
    return ""


def first_request(settings: Settings, model: str) -> str:
    """A curl line to try. Of client keys it names none: what is printed may be logged."""
    key = ' -H "authorization: Bearer $CLIENT_KEY"' if settings.wants_keys else ""
    # A model's name is the upstream's word, and this is for a shell.
    quoted = shlex.quote(
        '"' + "".join(c for c in model if c.isprintable() and c not in '"\\') + '"'
    )
    return CURL.format(url=url(settings), key=key, model=quoted[1:-1])


def url(settings: Settings) -> str:
    """The proxy's address as clients on this machine use it."""
    return f"http://{addresses.reachable_host(settings.host)}:{settings.port}"


def _place(where: str) -> str:
    """A path, or a URL without the password in it."""
    parts = urlsplit(where)
    if "://" in where and (parts.username or parts.password):
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return where


def _duration(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= size and seconds % size == 0:
            number = int(seconds // size)
            return f"{number} {name}{'s' if number > 1 else ''}"
    return f"{seconds:g} seconds"
