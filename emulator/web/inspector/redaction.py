"""Hide keys in every text that a page shows: the secrets of the settings, and text that looks like a key."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup

from emulator.core.addresses import HIDDEN
from emulator.core.client_keys import PREFIX
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings

_NAMED_KEY = re.compile(
    r"""(["'](?:authorization|proxy-authorization|(?:x-)?api[-_]?key|password|secret|client_secret"""
    r"""|access_token|refresh_token)\\?["']\s*:\s*\\?["'])[^"'\\]+""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY_SHAPE = re.compile(
    r"\b(?:(?:sk|pk|ghp|gho|xox[bp]|hf|AKIA)[-_]?|" + re.escape(PREFIX) + r")[A-Za-z0-9_-]{16,}"
)


def page_redactor(settings: Settings) -> Callable[[object], object]:
    """Return the function that Jinja applies to each value before it is escaped."""
    without_secrets = redactor(settings)

    def redact(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        value = _NAMED_KEY.sub(rf"\1{HIDDEN}", without_secrets(value))
        return _KEY_SHAPE.sub(HIDDEN, _BEARER.sub(rf"\1{HIDDEN}", value))

    return redact
