"""Refuse a request that has come through this proxy before: an upstream leads back here."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from flask import request

from emulator.errors import LoopDetected
from emulator.settings import Settings
from emulator.upstream import loops


def loop_guard(settings: Settings) -> Callable[[], None]:
    """The check of one request, which also notes where that has been; it raises `LoopDetected`."""
    own = secrets.token_hex(8)
    named = [f"upstreams.base_url {row.base_url}" for row in settings.upstreams]
    setting = " or ".join(named) or f"base_url {settings.base_url}"

    def check() -> None:
        if loops.is_loop(request.headers.get(loops.HEADER, ""), own):
            raise LoopDetected(
                f"This request has been here before: the setting {setting} leads back to this proxy. "
                "It must name the model's own server.",
                code="loop_detected",
            )

    return check
