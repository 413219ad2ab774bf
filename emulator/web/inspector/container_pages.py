"""The inspector's containers: what waits for a person's word, cells that requests have run, and files."""

from __future__ import annotations

import base64

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field

from emulator.errors import NotFound
from emulator.events import Image
from emulator.interpreter.interface import AnyInterpreter
from emulator.interpreter.pending_cell import ApprovalDecision
from emulator.protocol import parse_body
from emulator.storage.paging import Page
from emulator.traces import TraceReader
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer
from emulator.web.routes.executions import MAX_CODE
from emulator.web.routes.replies import json_reply
from emulator.web.routes.uploads import content_reply

PICTURES = ("image/png", "image/jpeg", "image/svg+xml")
_MOST = 100
"""Containers on the page, the newest."""
_ENDINGS = (".png", ".jpg", ".jpeg", ".svg")


class Word(BaseModel):
    """A decision on a held cell."""

    model_config = ConfigDict(extra="ignore")

    code: str | None = Field(None, max_length=MAX_CODE)
    reason: str = Field("", max_length=10_000)


def add_containers(
    inspector: Blueprint, pages: Pages, interpreter: AnyInterpreter, kept: TraceReader
) -> None:
    containers = interpreter.containers

    @inspector.get("/inspector/containers")
    def show_containers() -> Response:
        found = containers.list(viewer().asks_as, Page(limit=_MOST)).items
        return pages.page(
            "containers.html", viewer=viewer(), here="containers", containers=found,
            held=[held for one in found if one.approval for held in interpreter.pending_cells(one.id)],
        )  # fmt: skip

    @inspector.get("/inspector/containers/<container_id>")
    def show_container(container_id: str) -> Response:
        container = containers.get(viewer().asks_as, container_id, even_expired=True)
        running = container.status == "running"
        traces = kept.in_container(container_id, viewer().client)
        return pages.page(
            "container.html", viewer=viewer(), here="containers", container=container,
            files=containers.files(container_id) if running else (), endings=_ENDINGS,
            traces=traces, picture=_picture,
        )  # fmt: skip

    @inspector.get("/inspector/containers/<container_id>/files/<file_id>")
    def show_file(container_id: str, file_id: str) -> Response:
        """As a download: what a cell has written is shown by nothing but an ``img``."""
        containers.get(viewer().asks_as, container_id)
        file = containers.file(container_id, file_id)
        reply = content_reply(containers.open(container_id, file_id), file.filename)
        if file.filename.lower().endswith(".svg"):
            # An ``img`` wants to be told; no script in it runs there, nor where it is opened by itself.
            reply.content_type = "image/svg+xml"
        return reply

    @inspector.post("/inspector/containers/<container_id>/executions/<execution_id>/<word>")
    def decide(container_id: str, execution_id: str, word: str) -> Response:
        if word not in ("approve", "decline"):
            raise NotFound("A cell can be approved or declined.")
        container = containers.get(viewer().asks_as, container_id)
        told = parse_body(request.get_data(), Word)
        decision = ApprovalDecision(word == "approve", told.code, told.reason)
        interpreter.decide(container.id, execution_id, decision)
        return json_reply({"status": f"{word}d"})


def _picture(output: object) -> str:
    """The address of a picture that a cell has displayed; "" for anything else."""
    if not isinstance(output, Image) or output.media_type not in PICTURES:
        return ""
    return f"data:{output.media_type};base64,{base64.b64encode(output.data).decode()}"
