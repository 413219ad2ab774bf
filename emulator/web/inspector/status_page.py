"""The status page: upstreams, engines, settings, and on request the checks of `tool-emulator doctor`."""

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
    recorded: TraceReader,
) -> None:
    examining = threading.Lock()
    """One examination at a time, since each starts sandboxes."""

    @inspector.get("/inspector/status")
    def show_status() -> Response:
        _require_full_access()
        problems = reachability.problems()
        targets = [
            (target.name, url, problems.get(url, ""), ", ".join(target.row.models))
            for target in upstreams.routes.targets
            for url in [without_password(target.settings.base_url)]
        ]
        return pages.page(
            "status.html", viewer=viewer(), here="status", proxy_version=__version__,
            targets=targets, pools=pools.counts(), engines=engines,
            settings=_public_settings(settings), size=recorded.count_and_bytes(None),
        )  # fmt: skip

    @inspector.post("/inspector/status/doctor")
    def doctor() -> Response:
        _require_full_access()
        from emulator.doctor import examine  # imports all engines

        with examining:
            checks = examine(settings)
        return pages.page("_doctor.html", checks=checks)


def _require_full_access() -> None:
    if viewer().client is not None:
        raise Forbidden("The status page requires inspector_key.", code="inspector_key")


def _public_settings(settings: Settings) -> list[tuple[str, str, bool]]:
    """Return the settings that hold no secret: name, value, and whether it differs from the default."""
    rows: list[tuple[str, str, bool]] = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, SecretStr) or name in ("client_keys", "upstreams", "profiles", "mcp"):
            continue
        text = "" if value is None else str(value)
        if name.endswith("url"):
            text = without_password(value)
        if isinstance(value, tuple | list | dict):
            text = ", ".join(map(str, value))
        rows.append((name, text, value != field.default))
    return rows
