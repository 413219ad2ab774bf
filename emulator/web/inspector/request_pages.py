"""The inspector's pages of requests, at ``/`` and below ``/inspector``; `Access` says who may see them.

Its other pages are in the modules beside this one. What changes anything is sent as JSON, by the pages' own
script: a form of another page could be sent by anybody's browser, JSON cannot (`browser_guard`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, g, request
from pydantic import BaseModel, Field
from sse_starlette import ServerSentEvent

from emulator.errors import EmulatorError, NotFound, Unauthorized
from emulator.protocol import parse_body
from emulator.traces import Trace, TraceReader, Turn
from emulator.traces.listing import FILTERS
from emulator.traces.related import RelatedRequests
from emulator.web.inspector import program_view, request_view, snippets
from emulator.web.inspector.access import Access, Viewer
from emulator.web.inspector.fronts import path_of
from emulator.web.inspector.rendering import HEADERS, Pages
from emulator.web.routes.replies import json_reply, stream_reply

VIEWS = ("pipeline", "program", "repairs", "timing", "stream", "copy")
_STREAM_SECONDS = 5.0
"""How long a page listens on one connection: a proxy that is to end waits for it, so it is short."""
_AGAIN_MILLISECONDS = 500
"""After which a page listens anew."""
_OPEN = frozenset({"inspector.static", "inspector.sign_in"})


class SignIn(BaseModel):
    key: str = Field(max_length=4096)


def make_inspector(access: Access, pages: Pages, kept: TraceReader) -> Blueprint:
    """The pages of requests. Others are added to what this gives."""
    inspector = Blueprint("inspector", __name__)

    @inspector.before_request
    def look() -> None:
        if request.endpoint not in _OPEN:
            g.viewer = access.viewer(request)

    @inspector.errorhandler(EmulatorError)
    def failed(error: EmulatorError) -> Response:
        if request.method != "GET":
            return json_reply(error.body(), error.status)
        template = "sign_in.html" if isinstance(error, Unauthorized) else "error.html"
        return pages.page(template, error.status, error=error, viewer=None)

    @inspector.get("/inspector/static/<name>")
    def static(name: str) -> Response:
        return pages.asset(name)

    @inspector.post("/inspector/sign-in")
    def sign_in() -> Response:
        response = json_reply({"signed_in": True})
        access.sign_in(request, parse_body(request.get_data(), SignIn).key, response)
        return response

    @inspector.post("/inspector/sign-out")
    def sign_out() -> Response:
        response = json_reply({"signed_in": False})
        access.sign_out(request, response)
        return response

    @inspector.get("/inspector/<path:rest>")
    def no_page(rest: str) -> Response:
        raise NotFound(f"There is no page {rest!r} here.")  # and no upstream is asked for it

    _add_requests(inspector, pages, kept)
    return inspector


def _add_requests(inspector: Blueprint, pages: Pages, kept: TraceReader) -> None:
    @inspector.get("/")
    def list_requests() -> Response:
        found = kept.page(request.args, viewer().client)
        template = "_rows.html" if "fragment" in request.args else "requests.html"
        count, size = kept.count_and_bytes
        return pages.page(
            template, viewer=viewer(), listing=found, filters=FILTERS, count=count, size=size,
            link=_link, here="requests",
        )  # fmt: skip

    @inspector.get("/inspector/requests/<key>")
    def show_request(key: str) -> Response:
        return show_view(key, "pipeline")

    @inspector.get("/inspector/requests/<key>/<view>")
    def show_view(key: str, view: str) -> Response:
        trace = kept.get(key, viewer().client)
        if trace is None or view not in VIEWS:
            raise NotFound("This request is not kept (any more).")
        around = kept.related(trace)
        shown: dict[str, Any]
        if view == "pipeline":
            shown = {
                "turns": [*request_view.turns(trace, *_goes_on(trace, around))],
                "resumed": program_view.programs(trace)[:1] if trace.resumed else [],
            }
        else:
            shown = _SHOWN[view](trace)
        return pages.page(
            f"{view}.html", viewer=viewer(), trace=trace, view=view, views=VIEWS, here="requests",
            steps=around.steps, replays=bool(path_of(trace.path)), **shown,
        )  # fmt: skip

    def _goes_on(trace: Trace, around: RelatedRequests) -> tuple[Turn | None, str]:
        """The turn whose prompt the first one of ``trace`` goes on with, and the request that it is of."""
        before = kept.get(around.continues, trace.client) if around.continues else None
        return (None, "") if before is None or not before.turns else (before.turns[-1], before.id)

    @inspector.post("/inspector/clear")
    def clear() -> Response:
        return json_reply({"cleared": kept.clear(viewer().client)})

    @inspector.get("/inspector/events")
    def events() -> Response:
        response = stream_reply(_changes(kept))
        response.headers.update({**HEADERS, "cache-control": "no-cache"})
        return response


def viewer() -> Viewer:
    """Who looks at the page of this request."""
    found: Viewer = g.viewer
    return found


def _link(query: dict[str, str]) -> str:
    return f"/?{urlencode(query)}" if query else "/"


def _changes(kept: TraceReader) -> Iterator[bytes]:
    """The version of what is kept, now and whenever it changes: a page asks for what it shows by itself."""
    until = time.monotonic() + _STREAM_SECONDS
    version = -1
    while (left := until - time.monotonic()) > 0:
        try:
            now = kept.wait(version, left)
        except EmulatorError:
            return  # it listens anew
        if now != version:
            told = ServerSentEvent(str(now), event="changed", retry=_AGAIN_MILLISECONDS, sep="\n")
            yield told.encode()
        version = now


def _program(trace: Trace) -> dict[str, Any]:
    return {"programs": program_view.programs(trace)}


def _repairs(trace: Trace) -> dict[str, Any]:
    return {"repairs": [*request_view.repairs(trace)]}


def _timing(trace: Trace) -> dict[str, Any]:
    return {"bars": request_view.waterfall(trace)}


def _stream(trace: Trace) -> dict[str, Any]:
    return {"streams": [*request_view.streams(trace)]}


def _copy(trace: Trace) -> dict[str, Any]:
    host = request.host_url.rstrip("/")
    return {"curl": snippets.curl(trace, host), "python": snippets.python(trace, host)}


_SHOWN: dict[str, Callable[[Trace], dict[str, Any]]] = {
    "program": _program,
    "repairs": _repairs,
    "timing": _timing,
    "stream": _stream,
    "copy": _copy,
}
