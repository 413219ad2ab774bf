"""`/containers`: OpenAI's Containers and Container Files APIs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

from flask import Blueprint, Response, request
from pydantic import Field

from emulator.core.protocol import Lenient, parse_body
from emulator.interpreter.container_choice import NetworkPolicy
from emulator.interpreter.interpreter import Interpreter
from emulator.settings.settings import MemoryLimit
from emulator.storage.container_files import ROOT
from emulator.storage.containers import Containers
from emulator.storage.files import Files, check_name
from emulator.storage.paging import page_among
from emulator.web.middleware.in_flight import current
from emulator.web.routes.replies import body_as, client, json_reply
from emulator.web.routes.uploads import Upload, content_reply, is_form

_MOST_MINUTES = 30 * 24 * 60


class ExpiresAfter(Lenient):
    anchor: Literal["last_active_at"]
    minutes: int = Field(ge=1, le=_MOST_MINUTES)


class CreateContainer(Lenient):
    name: str = Field(min_length=1, max_length=256)
    expires_after: ExpiresAfter | None = None
    file_ids: list[str] | None = Field(None, max_length=100)
    memory_limit: MemoryLimit | None = None
    network_policy: NetworkPolicy | None = None
    skills: list[dict[str, Any]] | None = Field(None, max_length=0)
    stateful: bool = True
    approval: Literal["never", "required"] = "never"


class CreateContainerFile(Lenient):
    file_id: str


def add_routes(
    api: Blueprint, interpreter: Interpreter, files: Files, read_upload: Callable[[], Upload]
) -> None:
    _add_containers(api, interpreter)
    _add_container_files(api, interpreter.containers, files, read_upload)


def _add_containers(api: Blueprint, interpreter: Interpreter) -> None:
    containers = interpreter.containers

    @api.post("/containers")
    def create_container() -> Response:
        body = body_as(CreateContainer)
        container = containers.create(
            client(),
            name=body.name,
            expires_minutes=body.expires_after.minutes if body.expires_after else 20,
            memory_limit=body.memory_limit or "1g",
            file_ids=body.file_ids or (),
            stateful=body.stateful,
            approval=body.approval == "required",
        )
        return json_reply(container.json())

    @api.get("/containers")
    def list_containers() -> Response:
        found = containers.list(client(), name=request.args.get("name"))
        return json_reply(page_among([one.json() for one in found], request.args, "cntr_"))

    @api.get("/containers/<container_id>")
    def retrieve_container(container_id: str) -> Response:
        containers.touch(containers.get(client(), container_id, even_expired=True).id)
        return json_reply(containers.get(client(), container_id, even_expired=True).json())

    @api.delete("/containers/<container_id>")
    def delete_container(container_id: str) -> Response:
        interpreter.delete(client(), container_id)
        return json_reply({"id": container_id, "object": "container.deleted", "deleted": True})


def _add_container_files(
    api: Blueprint, containers: Containers, files: Files, read_upload: Callable[[], Upload]
) -> None:
    def use(container_id: str) -> None:
        """Extend the container's life. Raises `NotFound` unless it is the client's."""
        containers.touch(containers.get(client(), container_id).id)

    @api.post("/containers/<container_id>/files")
    def create_container_file(container_id: str) -> Response:
        use(container_id)
        with ExitStack() as opened:
            upload = read_upload() if is_form() else None
            if upload and upload.content:
                name, content = upload.filename, upload.content
                check_name(name)
            else:
                fields = upload.fields if upload else current.get().body
                file_id = parse_body(fields, CreateContainerFile).file_id
                name = files.get(client(), file_id).filename
                content = opened.enter_context(files.open(client(), file_id))
            file = containers.put_file(container_id, ROOT + name, content, "user")
        return json_reply(file.json())

    @api.get("/containers/<container_id>/files")
    def list_container_files(container_id: str) -> Response:
        use(container_id)
        found = [file.json() for file in containers.files(container_id)]
        return json_reply(page_among(found, request.args, "cfile_"))

    @api.get("/containers/<container_id>/files/<file_id>")
    def retrieve_container_file(container_id: str, file_id: str) -> Response:
        use(container_id)
        return json_reply(containers.file(container_id, file_id).json())

    @api.get("/containers/<container_id>/files/<file_id>/content")
    def retrieve_container_file_content(container_id: str, file_id: str) -> Response:
        use(container_id)
        file = containers.file(container_id, file_id)
        return content_reply(containers.open(container_id, file_id), file.filename)

    @api.delete("/containers/<container_id>/files/<file_id>")
    def delete_container_file(container_id: str, file_id: str) -> Response:
        use(container_id)
        containers.remove(container_id, file_id)
        return json_reply({"id": file_id, "object": "container.file.deleted", "deleted": True})
