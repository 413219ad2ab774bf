"""Keys taken out of what is shown: those that the proxy knows, and what looks like one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from markupsafe import Markup

from emulator.settings import Settings
from emulator.upstream.routes import Routes

HIDDEN = "[hidden]"
_SHORTEST = 8
"""A shorter key is a word like any other."""
_NAMED = re.compile(
    r"""(["'](?:authorization|proxy-authorization|(?:x-)?api[-_]?key|password|secret|client_secret"""
    r"""|access_token|refresh_token)\\?["']\s*:\s*\\?["'])[^"'\\]+""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_SHAPED = re.compile(r"\b(?:sk|pk|ghp|gho|xox[bp]|hf|AKIA)[-_]?[A-Za-z0-9_-]{16,}")


def redactor(settings: Settings) -> Callable[[object], object]:
    """What Jinja is to do with each value before it is escaped."""
    known = sorted(_keys(settings), key=len, reverse=True)
    ours = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        if ours is not None:
            value = ours.sub(HIDDEN, value)
        value = _NAMED.sub(rf"\1{HIDDEN}", value)
        return _SHAPED.sub(HIDDEN, _BEARER.sub(rf"\1{HIDDEN}", value))

    return redact


def _keys(settings: Settings) -> Iterable[str]:
    secret = [settings.inspector_key, settings.gateway_token, *settings.client_keys]
    for target in Routes(settings).targets:
        secret.append(target.settings.api_key)
        yield from (value for value in target.headers.values() if len(value) >= _SHORTEST)
    keys = (one.get_secret_value() for one in secret)
    yield from (key for key in keys if len(key) >= _SHORTEST)
