"""`/chat/completions` and `/models`."""

from __future__ import annotations

import structlog
from flask import Blueprint, Response, request

from emulator.answering.pipeline import Pipeline
from emulator.chat.chunks import collect
from emulator.chat.front import complete
from emulator.errors import NotFound
from emulator.events import Opened
from emulator.protocol import parse_chat
from emulator.settings import Settings
from emulator.upstream.interface import ModelList
from emulator.web.routes.reply import client, json_reply, order, stream_reply
from emulator.web.streaming import EventStream

log = structlog.get_logger()


def add_routes(api: Blueprint, pipeline: Pipeline, models: ModelList, settings: Settings) -> None:
    @api.post("/chat/completions")
    def chat_completions() -> Response:
        body = request.get_data()
        if settings.log_bodies:
            log.info("request body", body=body.decode(errors="replace"))
        chat = parse_chat(body)
        chunks = complete(pipeline, chat, client(), request.host_url.rstrip("/"), order())
        # The upstream's refusal comes out here, and so keeps its status in a stream too.
        opened = next(chunks)
        if not chat.stream:
            response = json_reply(collect(chunks))
        else:
            response = stream_reply(EventStream(opened, chunks, settings.ping_seconds))
        if isinstance(opened, Opened):
            response.headers["x-emulator-turns-saved"] = str(opened.turns_saved)
            if opened.container_id:
                response.headers["x-emulator-container"] = opened.container_id
        return response

    @api.get("/models")
    def list_models() -> Response:
        return json_reply({"object": "list", "data": models.all()})

    @api.get("/models/<path:name>")
    def retrieve_model(name: str) -> Response:
        for model in models.all():
            if model.get("id") == name:
                return json_reply(model)
        raise NotFound(f"The model {name!r} does not exist.", "model", "model_not_found")
