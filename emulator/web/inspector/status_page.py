"""The status page: upstreams, programs, settings, and on request the checks of `tool-emulator doctor`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from flask import Blueprint, Response

from emulator import __version__
from emulator.core.addresses import shown_url
from emulator.core.errors import Forbidden
from emulator.settings.redaction import shown
from emulator.settings.settings import Settings
from emulator.traces import Archive
from emulator.upstream.reachability import Reachability
from emulator.upstream.upstreams import Upstreams
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer
from emulator.web.middleware.measuring import KernelCounts
from sandbox.programs.server import ProgramServer


def add_status(
    inspector: Blueprint,
    pages: Pages,
    settings: Settings,
    upstreams: Upstreams,
    reachability: Reachability,
    programs: ProgramServer,
    pools: KernelCounts,
    recorded: Archive,
    mcp_problems: Mapping[str, str],
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
            for url in [shown_url(target.settings.base_url)]
        ]
        mcp = [
            # A URL's path may be a key.
            (
                name,
                row.command or urlsplit(row.url.get_secret_value()).hostname,
                mcp_problems.get(name),
            )
            for name, row in settings.mcp.items()
        ]
        return pages.page(
            "status.html", viewer=viewer(), here="status", proxy_version=__version__,
            targets=targets, mcp=mcp, pools=pools.counts(), programs=programs,
            settings=_shown_settings(settings), size=recorded.count_and_bytes(None),
        )  # fmt: skip

    @inspector.post("/inspector/status/doctor")
    def doctor() -> Response:
        _require_full_access()
        from emulator.interpreter.doctor import examine  # imports all sandboxes

        with examining:
            checks = examine(settings)
        return pages.page("_doctor.html", checks=checks)


def _require_full_access() -> None:
    if viewer().client is not None:
        raise Forbidden("The status page requires inspector_key.", code="inspector_key")


def _shown_settings(settings: Settings) -> list[tuple[str, str, bool]]:
    """Return each setting: name, value without secrets, and whether it differs from the default."""
    return [
        (name, shown(value), value != field.default)
        for name, field in Settings.model_fields.items()
        for value in [getattr(settings, name)]
    ]
