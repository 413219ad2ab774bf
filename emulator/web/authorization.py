"""Who may ask: the client's key, and the name under which the other rooms know the client."""

from __future__ import annotations

import hashlib
import hmac

from flask import Blueprint, g, request

from emulator.errors import Unauthorized
from emulator.settings import Settings
from emulator.upstream.interface import KeyedClient
from emulator.upstream.routes import Routes


def require_key(api: Blueprint, settings: Settings) -> None:
    """Let no request to the routes of ``api`` pass without a key, if there are keys; note who it is."""
    keys = [key.get_secret_value().encode() for key in settings.client_keys]
    own_keys = any(target.settings.pass_client_key for target in Routes(settings).targets)

    @api.before_request
    def authorize() -> None:
        if request.method == "OPTIONS":
            return  # a browser's preflight carries no key
        presented = _key().encode()
        # Every key is compared, so that the time tells neither which one fits nor how far.
        if keys and not sum(hmac.compare_digest(presented, key) for key in keys):
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        # What is kept for a client is for those who hold its key; without keys there is one client.
        name = hashlib.sha256(presented).hexdigest()[:32]
        g.client = KeyedClient(name, presented.decode()) if own_keys else name if keys else ""


def _key() -> str:
    """The client's key, as OpenAI's clients send it or as Anthropic's do."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (bearer or request.headers.get("x-api-key", "")).strip()
