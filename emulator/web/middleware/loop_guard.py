"""Refuse a request that has already passed through this proxy: an upstream leads back here."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from werkzeug.datastructures import Headers

from emulator.core.addresses import shown_url
from emulator.core.errors import LoopDetected
from emulator.settings.settings import Settings
from emulator.upstream import loops


def loop_guard(settings: Settings) -> Callable[[Headers], None]:
    """Return the check of a request; it raises `LoopDetected` and adds this proxy to the request's path."""
    own = secrets.token_hex(8)
    named = [f"upstreams.base_url {shown_url(row.base_url)}" for row in settings.upstreams]
    setting = " or ".join(named) or f"base_url {shown_url(settings.base_url)}"

    def check(headers: Headers) -> None:
        if loops.is_loop(headers.get(loops.HEADER, ""), own):
            raise LoopDetected(
                f"This request has already passed through this proxy: the setting {setting} leads back "
                "to it. It must name the model server.",
                code="loop_detected",
            )

    return check
