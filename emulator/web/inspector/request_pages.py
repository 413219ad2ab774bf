"""The inspector's blueprint, and its pages of requests at ``/`` and below ``/inspector``.

`Access` decides who may see them. Everything that changes state is sent as JSON by the pages' own script:
another site could make a browser send a form, but not JSON (`browser_guard`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, g, request
from pydantic import BaseModel, Field

from emulator.core.errors import EmulatorError, NotFound, Unauthorized
from emulator.traces import Archive, Trace, Turn
from emulator.traces.listing import FILTERS, SINCE
from emulator.traces.related import RelatedRequests
from emulator.web.inspector import program_view, request_view, snippets
from emulator.web.inspector.access import Access, Viewer
from emulator.web.inspector.fronts import path_of
from emulator.web.inspector.rendering import HEADERS, Pages
from emulator.web.inspector.request_file import request_file
from emulator.web.routes.replies import body_as, json_reply

VIEWS = ("pipeline", "program", "repairs", "timing", "stream", "copy")
_PUBLIC = frozenset({"inspector.static", "inspector.sign_in"})


class SignIn(BaseModel):
    key: str = Field(max_length=4096)


def make_inspector(
    access: Access, pages: Pages, recorded: Archive, check_limits: Callable[[str], None]
) -> Blueprint:
    """Return the blueprint with the pages of requests; other modules add theirs to it."""
    inspector = Blueprint("inspector", __name__)

    @inspector.before_request
    def authorize() -> Response | None:
        if request.endpoint in _PUBLIC:
            return None
        if request.method == "GET" and (token := request.args.get("token")):
            # The address without the token is the one that the browser shows and remembers.
            rest = urlencode(
                [pair for pair in request.args.items(multi=True) if pair[0] != "token"]
            )
            address = request.path + "?" * bool(rest) + rest
            response = Response(status=303, headers={**HEADERS, "location": address})
            access.sign_in(request, token, response)
            return response
        g.viewer = access.viewer(request)
        if request.method == "POST" and request.endpoint != "inspector.send":
            check_limits(g.viewer.sends_as)  # counted with the client's requests to the API
        return None

    @inspector.errorhandler(EmulatorError)
    def error_page(error: EmulatorError) -> Response:
        if request.method != "GET":
            response = json_reply(error.body(), error.status)
            response.headers.update(error.headers)
            return response
        template = "sign_in.html" if isinstance(error, Unauthorized) else "error.html"
        page = pages.page(template, error.status, error=error, viewer=None)
        page.headers.update(error.headers)
        return page

    @inspector.get("/inspector/static/<name>")
    def static(name: str) -> Response:
        return pages.asset(name)

    @inspector.post("/inspector/sign-in")
    def sign_in() -> Response:
        response = json_reply({"signed_in": True})
        access.sign_in(request, body_as(SignIn).key, response)
        return response

    @inspector.post("/inspector/sign-out")
    def sign_out() -> Response:
        response = json_reply({"signed_in": False})
        access.sign_out(request, response)
        return response

    @inspector.get("/inspector/<path:rest>")
    def no_page(rest: str) -> Response:
        # Without this route the request would be passed to the upstream.
        raise NotFound(f"The inspector has no page {rest!r}.")

    _add_requests(inspector, pages, recorded)
    return inspector


def _add_requests(inspector: Blueprint, pages: Pages, recorded: Archive) -> None:
    @inspector.get("/")
    def list_requests() -> Response:
        listing = recorded.page(request.args, viewer().client)
        count, size = recorded.count_and_bytes(viewer().client)
        return pages.page(
            "requests.html", viewer=viewer(), listing=listing, filters=FILTERS, periods=SINCE,
            count=count, size=size, link=_link, here="requests",
        )  # fmt: skip

    @inspector.get("/inspector/requests/<key>")
    def show_request(key: str) -> Response:
        return show_view(key, "pipeline")

    @inspector.get("/inspector/requests/<key>/file")
    def export_request(key: str) -> Response:
        trace = recorded.get(key, viewer().client)
        if trace is None:
            raise NotFound("This request is not stored (any more).")
        name = {"content-disposition": f'attachment; filename="{trace.id}.json"'}
        data = request_file(trace, pages.redact)
        return Response(data, 200, {**HEADERS, **name}, mimetype="application/json")

    @inspector.get("/inspector/requests/<key>/<view>")
    def show_view(key: str, view: str) -> Response:
        trace = recorded.get(key, viewer().client)
        if trace is None or view not in VIEWS:
            raise NotFound("This request is not stored (any more).")
        related = recorded.related(trace)
        return pages.page(
            f"{view}.html", viewer=viewer(), trace=trace, view=view, views=VIEWS, here="requests",
            steps=related.steps, earlier=related.earlier, later=related.later,
            replays=bool(path_of(trace.path)),
            **_values(view, trace, related, recorded),
        )  # fmt: skip

    @inspector.post("/inspector/clear")
    def clear() -> Response:
        return json_reply({"cleared": recorded.clear(viewer().client)})


def _values(view: str, trace: Trace, related: RelatedRequests, recorded: Archive) -> dict[str, Any]:
    """Return what one of `VIEWS` shows besides the trace itself."""
    match view:
        case "pipeline":
            return {
                "turns": [*request_view.turns(trace, *_turn_before(trace, related, recorded))],
                "resumed": program_view.program_views(trace)[:1] if trace.resumed else [],
            }
        case "program":
            return {"programs": program_view.program_views(trace)}
        case "repairs":
            return {"repairs": [*request_view.repairs(trace)]}
        case "timing":
            return {"bars": request_view.waterfall(trace)}
        case "stream":
            return {"streams": [*request_view.streams(trace)]}
    host = request.host_url.rstrip("/")
    return {"curl": snippets.curl(trace, host), "python": snippets.python(trace, host)}


def _turn_before(
    trace: Trace, related: RelatedRequests, recorded: Archive
) -> tuple[Turn | None, str]:
    """Return the turn with whose prompt the first of ``trace`` is compared, and the id of its request."""
    before = recorded.get(related.compared, trace.client) if related.compared else None
    return (None, "") if before is None or not before.turns else (before.turns[-1], before.id)


def viewer() -> Viewer:
    """Return who views the current page."""
    current: Viewer = g.viewer
    return current


def _link(query: dict[str, str]) -> str:
    return f"/?{urlencode(query)}" if query else "/"
