"""Replace keys in every text that a page shows: the keys of the settings, and text that looks like a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from markupsafe import Markup

from emulator.client_keys import PREFIX
from emulator.settings import Settings
from emulator.upstream.routes import Routes

HIDDEN = "[hidden]"
_MIN_CHARS = 8
"""A shorter key could be an ordinary word."""
_NAMED_KEY = re.compile(
    r"""(["'](?:authorization|proxy-authorization|(?:x-)?api[-_]?key|password|secret|client_secret"""
    r"""|access_token|refresh_token)\\?["']\s*:\s*\\?["'])[^"'\\]+""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY_SHAPE = re.compile(
    r"\b(?:(?:sk|pk|ghp|gho|xox[bp]|hf|AKIA)[-_]?|" + re.escape(PREFIX) + r")[A-Za-z0-9_-]{16,}"
)


def redactor(settings: Settings) -> Callable[[object], object]:
    """Return the function that Jinja applies to each value before it is escaped."""
    keys = sorted(_keys(settings), key=len, reverse=True)
    own_keys = re.compile("|".join(map(re.escape, keys))) if keys else None

    def redact(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        if own_keys is not None:
            value = own_keys.sub(HIDDEN, value)
        value = _NAMED_KEY.sub(rf"\1{HIDDEN}", value)
        return _KEY_SHAPE.sub(HIDDEN, _BEARER.sub(rf"\1{HIDDEN}", value))

    return redact


def _keys(settings: Settings) -> Iterable[str]:
    secret = [settings.inspector_key, settings.gateway_token, *settings.client_keys]
    for target in Routes(settings).targets:
        secret.append(target.settings.api_key)
        yield from (value for value in target.row.headers.values() if len(value) >= _MIN_CHARS)
    for server in settings.mcp.values():
        secret += [*server.headers.values(), *server.env.values()]
        secret += [] if server.token is None else [server.token]
    keys = (one.get_secret_value() for one in secret)
    yield from (key for key in keys if len(key) >= _MIN_CHARS)
