"""`/files`: OpenAI's Files API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from flask import Blueprint, Response, request

from emulator.core.errors import BadRequest
from emulator.storage.files import Files
from emulator.storage.paging import page_among
from emulator.web.routes.replies import client, json_reply
from emulator.web.routes.uploads import Upload, content_reply


def add_routes(api: Blueprint, files: Files, read_upload: Callable[[], Upload]) -> None:
    @api.post("/files")
    def create_file() -> Response:
        upload = read_upload()
        if upload.content is None:
            raise BadRequest("The form has no file named 'file'.", "file")
        purpose, seconds = upload.fields.get("purpose", ""), _expires_seconds(upload.fields)
        file = files.create(client(), upload.filename, upload.content, purpose, seconds)
        return json_reply(file.json())

    @api.get("/files")
    def list_files() -> Response:
        found = [file.json() for file in files.list(client(), purpose=request.args.get("purpose"))]
        return json_reply(page_among(found, request.args, "file-", default=10_000, most=10_000))

    @api.get("/files/<file_id>")
    def retrieve_file(file_id: str) -> Response:
        return json_reply(files.get(client(), file_id).json())

    @api.get("/files/<file_id>/content")
    def retrieve_file_content(file_id: str) -> Response:
        file = files.get(client(), file_id)
        return content_reply(files.open(client(), file_id), file.filename)

    @api.delete("/files/<file_id>")
    def delete_file(file_id: str) -> Response:
        files.delete(client(), file_id)
        return json_reply({"id": file_id, "object": "file", "deleted": True})


def _expires_seconds(fields: Mapping[str, str]) -> int | None:
    anchor, seconds = (fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise BadRequest(
            "Invalid 'expires_after[anchor]': expected created_at.", "expires_after[anchor]"
        )
    # What is no number is out of range too.
    return int(seconds) if seconds and re.fullmatch("[0-9]{1,9}", seconds) else -1
