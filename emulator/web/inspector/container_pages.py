"""The pages of containers: what waits for approval, cells that requests ran, and files."""

from __future__ import annotations

from flask import Blueprint, Response
from pydantic import BaseModel, ConfigDict, Field

from emulator.core.errors import NotFound
from emulator.hosted.elicitation import Question, read_question
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.interpreter import Interpreter
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval
from emulator.traces import Archive
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer
from emulator.web.routes.executions import MAX_CODE
from emulator.web.routes.replies import body_as, json_reply
from emulator.web.routes.uploads import content_reply

_MAX_CONTAINERS = 100
"""The newest are listed; what waits for approval is shown for all."""
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".svg")


class DecisionForm(BaseModel):
    """The fields of a server's question are named by their place: ``field-0``."""

    model_config = ConfigDict(extra="allow")

    code: str | None = Field(None, max_length=MAX_CODE)
    reason: str = Field("", max_length=10_000)


def add_containers(
    inspector: Blueprint,
    pages: Pages,
    interpreter: Interpreter,
    calls: Approvals,
    recorded: Archive,
) -> None:
    """``calls`` are the hosted calls that wait for approval."""
    containers = interpreter.containers

    def pending_calls() -> list[tuple[PendingApproval, str]]:
        """The calls of the viewer, or of all clients that wait for an answer of this replica, with their
        client's name."""
        clients = {str(viewer().sends_as): ""}
        if viewer().client is None:
            clients |= recorded.running_clients()
        return [(call, clients[key]) for key in sorted(clients) for call in calls.pending(key)]

    def pending_cells() -> list[PendingApproval]:
        newest = containers.list(viewer().sends_as)[::-1]
        return [
            cell for one in newest if one.approval for cell in interpreter.pending_cells(one.id)
        ]

    pages.count_waiting = lambda: len(pending_cells()) + len(pending_calls())

    @inspector.get("/inspector/containers")
    def show_containers() -> Response:
        newest = containers.list(viewer().sends_as)[::-1]
        return pages.page(
            "containers.html", viewer=viewer(), here="containers", containers=newest[:_MAX_CONTAINERS],
            pending_cells=pending_cells(), pending_calls=[
                (call, client, read_question(call.code)) for call, client in pending_calls()
            ],
        )  # fmt: skip

    @inspector.get("/inspector/containers/<container_id>")
    def show_container(container_id: str) -> Response:
        container = containers.get(viewer().sends_as, container_id, even_expired=True)
        running = container.status == "running"
        found = recorded.page({"q": container_id}, viewer().client).rows
        traces = [recorded.get(row.id) for row in found if row.container == container_id]
        return pages.page(
            "container.html", viewer=viewer(), here="containers", container=container,
            files=containers.files(container_id) if running else (), picture_suffixes=_PICTURE_SUFFIXES,
            traces=[*filter(None, traces)],
        )  # fmt: skip

    @inspector.get("/inspector/containers/<container_id>/files/<file_id>")
    def show_file(container_id: str, file_id: str) -> Response:
        """Send a file as a download: a page shows a cell's file only in an ``img`` element."""
        containers.get(viewer().sends_as, container_id)
        file = containers.file(container_id, file_id)
        reply = content_reply(containers.open(container_id, file_id), file.filename)
        if file.filename.lower().endswith(".svg"):
            # An ``img`` needs this type. Scripts in it run neither there nor when it is opened by itself.
            reply.content_type = "image/svg+xml"
        return reply

    @inspector.post("/inspector/containers/<container_id>/executions/<execution_id>/<verb>")
    def decide(container_id: str, execution_id: str, verb: str) -> Response:
        container = containers.get(viewer().sends_as, container_id)
        interpreter.decide(container.id, execution_id, _decision(verb))
        return json_reply({"status": f"{verb}d"})

    @inspector.post("/inspector/calls/<key>/<verb>")
    def decide_call(key: str, verb: str) -> Response:
        waiting = next((call for call, _ in pending_calls() if call.id == key), None)
        if waiting is None:
            raise NotFound(f"No call {key!r} waits for approval.")
        calls.decide(waiting.owner, key, _decision(verb, read_question(waiting.code)))
        return json_reply({"status": f"{verb}d"})


def _decision(verb: str, question: Question | None = None) -> ApprovalDecision:
    """The decision that the current request sends; its code is the answer to a ``question``, which only the
    process that asks can read. Raises `BadRequest` for values that the server does not accept."""
    if verb not in ("approve", "decline"):
        raise NotFound("A cell or call can only be approved or declined.")
    form = body_as(DecisionForm)
    if question is not None:
        answer = question.answer(form.model_extra or {}) if verb == "approve" else None
        return ApprovalDecision(verb == "approve", answer)
    return ApprovalDecision(verb == "approve", form.code, form.reason)
