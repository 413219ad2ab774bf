"""Recognize the client by its key, and determine the name under which the other rooms know the client.

The keys of the setting ``client_keys`` allow everything. Those of the file ``client_keys_file`` allow what
their `Grant` says.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from werkzeug.datastructures import Headers

from emulator.core.client_keys import UNLIMITED, ClientKeys, Grant, KeyedClient, hashed
from emulator.core.errors import Unauthorized
from emulator.settings.settings import Settings
from emulator.upstream.routes import Routes

_NO_KEY = (
    "No API key provided: send one of this proxy's client keys as 'authorization: Bearer KEY'."
)


def recognizer(
    settings: Settings, from_file: ClientKeys | None, now: Callable[[], float]
) -> Callable[[str], KeyedClient]:
    """Return a function from a presented key to its client. It raises `Unauthorized` for an unknown key."""
    keys = [key.get_secret_value().encode() for key in settings.client_keys]
    own_keys = any(target.settings.pass_client_key for target in Routes(settings).targets)

    def client(key: str) -> KeyedClient:
        presented = key.encode()
        grant = UNLIMITED
        # Every key is compared, so that the time reveals neither which key matches nor how much of it.
        if settings.wants_keys and not sum(hmac.compare_digest(presented, key) for key in keys):
            grant = _granted(from_file, presented, now())
        # Stored things belong to the key; without keys all requests are of one client.
        name = hashed(presented)[:32] if settings.wants_keys or own_keys else ""
        return KeyedClient(name, key if own_keys else "", grant)

    return client


def _granted(keys: ClientKeys | None, presented: bytes, now: float) -> Grant:
    """Raises `Unauthorized`. Only the holder of an expired or disabled key learns that the key exists."""
    grant = keys.find(presented) if keys is not None else None
    if grant is None:
        reason = "Incorrect API key provided." if presented else _NO_KEY
        raise Unauthorized(reason, code="invalid_api_key")
    if not grant.valid(now):
        reason = "has expired" if grant.enabled else "is disabled"
        raise Unauthorized(f"The API key {grant.name!r} {reason}.", code="invalid_api_key")
    return grant


def is_operators(key: str, settings: Settings) -> bool:
    """Return True if ``key`` is ``inspector_key``, which shows what belongs to all clients."""
    own = settings.inspector_key.get_secret_value()
    return bool(own) and hmac.compare_digest(key.encode(), own.encode())


def presented_key(headers: Headers) -> str:
    """The client's key, as OpenAI's clients send it, as Anthropic's do, or as Azure's do."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return (bearer or headers.get("x-api-key") or headers.get("api-key", "")).strip()
