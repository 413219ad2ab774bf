"""The inspector's status page: upstreams, engines, limits, and the doctor when it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from flask import Blueprint, Response
from pydantic import SecretStr

from emulator import __version__
from emulator.errors import Forbidden
from emulator.settings import Settings
from emulator.traces import TraceReader
from emulator.upstream.failures import without_password
from emulator.upstream.reachability import Reachability
from emulator.upstream.upstreams import Upstreams
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer
from emulator.web.middleware.measuring import KernelCounts
from sandbox.engine import Engine


def add_status(
    inspector: Blueprint,
    pages: Pages,
    settings: Settings,
    upstreams: Upstreams,
    reachability: Reachability,
    engines: Sequence[Engine],
    pools: KernelCounts,
    kept: TraceReader,
) -> None:
    examining = threading.Lock()
    """The doctor starts sandboxes: one at a time."""

    @inspector.get("/inspector/status")
    def show_status() -> Response:
        _allowed()
        problems = reachability.problems()
        targets = [
            (target.name, url, problems.get(url, ""), ", ".join(target.patterns))
            for target in upstreams.routes.targets
            for url in [without_password(target.settings.base_url)]
        ]
        return pages.page(
            "status.html", viewer=viewer(), here="status", proxy_version=__version__,
            targets=targets, pools=pools.counts(), engines=[_engine(engine) for engine in engines],
            settings=_told(settings), kept=kept.count_and_bytes,
        )  # fmt: skip

    @inspector.post("/inspector/status/doctor")
    def doctor() -> Response:
        _allowed()
        from emulator.doctor import examine  # brings all engines

        with examining:
            checks = examine(settings)
        return pages.page("_doctor.html", checks=checks)


def _allowed() -> None:
    if viewer().client is not None:
        raise Forbidden(
            "The status is shown to those who hold inspector_key.", code="inspector_key"
        )


def _engine(engine: Engine) -> tuple[str, int | None]:
    """Its name, and how many sandboxes wait ready, where it can tell."""
    ready = getattr(engine, "ready", None)
    return engine.name, ready if isinstance(ready, int) else None


def _told(settings: Settings) -> list[tuple[str, str, bool]]:
    """Settings that are plain and no secret: name, value, whether it is another than the default."""
    told: list[tuple[str, str, bool]] = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, SecretStr) or name in ("client_keys", "upstreams", "profiles"):
            continue
        text = without_password(value) if name.endswith("url") else str(value)
        told.append((name, text, value != field.default))
    return told
