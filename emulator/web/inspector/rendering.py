"""Render templates. Every value is redacted and escaped; the policy runs only the inspector's own script."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from flask import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from emulator.core.errors import EmulatorError, NotFound
from emulator.core.events import Image
from emulator.settings.settings import Settings
from emulator.web.inspector.redaction import page_redactor

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_STATIC = {
    "inspector.js": "text/javascript",
    "inspector.css": "text/css",
    "icon.svg": "image/svg+xml",
}
_PICTURES = ("image/png", "image/jpeg", "image/svg+xml")
MAX_CHARS = 200_000
"""Longest text on a page."""
_REORDERING = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


class Pages:
    def __init__(self, settings: Settings) -> None:
        self.redact = page_redactor(settings)
        self._environment = Environment(
            loader=PackageLoader("emulator.web.inspector", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self.redact,
            auto_reload=False,
        )
        self._environment.filters |= {
            "clock": _clock,
            "seconds": _seconds,
            "pretty": pretty,
            "pretty_text": lambda text: pretty(text.encode(errors="replace")),
            "cut": _cut,
            "visible": _visible,
        }
        self.count_waiting: Callable[[], int] = lambda: 0
        """How many cells and calls wait for the viewer's approval."""
        folder = files("emulator.web.inspector") / "static"
        self._static = {name: (folder / name).read_bytes() for name in _STATIC}
        version = hashlib.sha256(b"".join(self._static.values())).hexdigest()[:12]
        self._environment.globals |= {"version": version, "picture": _picture}

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        values["waiting"] = 0
        with suppress(EmulatorError):  # a page can be shown without the number
            if values.get("viewer"):
                values["waiting"] = self.count_waiting()
        text = self._environment.get_template(template).render(**values)
        return Response(text, status, HEADERS, mimetype="text/html")

    def asset(self, name: str) -> Response:
        """Raises `NotFound`."""
        if name not in _STATIC:
            raise NotFound(f"The inspector has no file {name!r}.")
        headers = {**HEADERS, "cache-control": "public, max-age=86400"}
        return Response(self._static[name], 200, headers, mimetype=_STATIC[name])


def pretty(value: Any) -> str:
    """Return indented JSON, or the text of bytes that are not JSON."""
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    except (ValueError, RecursionError):
        return repr(value)


def _picture(output: object) -> str:
    """Return a displayed picture as a data URL, or "" for any other output."""
    if not isinstance(output, Image) or output.media_type not in _PICTURES:
        return ""
    return f"data:{output.media_type};base64,{base64.b64encode(output.data).decode()}"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _cut(text: str) -> str:
    """Return the part of a text that a page shows."""
    text = _visible(text)
    excess = len(text) - MAX_CHARS
    return text if excess <= 0 else f"{text[:MAX_CHARS]}\n… {excess} more characters"


def _visible(text: str) -> str:
    """Write characters that reorder the text around them as escapes (Trojan Source, CVE-2021-42574)."""
    return text.translate(_REORDERING)


def _clock(moment: float, *, zone: bool = True) -> Markup:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    shown = f"{stamp[:10]} {stamp[11:19]}{' UTC' if zone else ''}"
    return Markup('<time datetime="{}">{}</time>').format(stamp, shown)


def _seconds(value: float | None) -> str:
    if value is None:
        return "…"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s"
