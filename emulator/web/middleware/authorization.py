"""Who may ask: the client's key, and the name under which the other rooms know the client.

Keys are those of the setting ``client_keys``, which may do all, and of the file that ``client_keys_file``
names, whose `Grant`s say what each may do.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

from flask import Blueprint, g, request

from emulator.client_keys import UNLIMITED, ClientKeys, Grant, KeyedClient, hashed
from emulator.errors import Unauthorized
from emulator.settings import Settings
from emulator.upstream.routes import Routes


def require_key(
    api: Blueprint,
    settings: Settings,
    from_file: ClientKeys | None = None,
    now: Callable[[], float] = time.time,
) -> None:
    """Let no request to the routes of ``api`` pass without a key, if there are keys; note who it is."""
    client = recognizer(settings, from_file, now)

    @api.before_request
    def authorize() -> None:
        if request.method != "OPTIONS":  # a browser's preflight carries no key
            g.client = client(presented_key())


def recognizer(
    settings: Settings, from_file: ClientKeys | None, now: Callable[[], float]
) -> Callable[[str], KeyedClient]:
    """Who it is that presents a key. Raises `Unauthorized` where one is wanted, and this is none."""
    keys = [key.get_secret_value().encode() for key in settings.client_keys]
    own_keys = any(target.settings.pass_client_key for target in Routes(settings).targets)

    def client(key: str) -> KeyedClient:
        presented = key.encode()
        grant = UNLIMITED
        # Every key is compared, so that the time tells neither which one fits nor how far.
        if settings.wants_keys and not sum(hmac.compare_digest(presented, key) for key in keys):
            grant = _granted(from_file, presented, now())
        # What is kept for a client is for those who hold its key; without keys there is one client.
        name = hashed(presented)[:32] if settings.wants_keys or own_keys else ""
        return KeyedClient(name, key if own_keys else "", grant)

    return client


def _granted(keys: ClientKeys | None, presented: bytes, now: float) -> Grant:
    """Raises `Unauthorized`. Who has a key that is over is told so; others learn of none."""
    grant = keys.find(presented) if keys is not None else None
    if grant is None:
        raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
    if not grant.valid(now):
        over = "has expired" if grant.enabled else "is disabled"
        raise Unauthorized(f"The API key {grant.name!r} {over}.", code="invalid_api_key")
    return grant


def presented_key() -> str:
    """The client's key, as OpenAI's clients send it or as Anthropic's do."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (bearer or request.headers.get("x-api-key", "")).strip()
