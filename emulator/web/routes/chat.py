"""`/chat/completions`."""

from __future__ import annotations

from flask import Blueprint, Response

from emulator.answering.pipeline import Pipeline
from emulator.core.protocol import parse_chat
from emulator.core.wire import check_fields
from emulator.fronts.chat.chunks import collect
from emulator.fronts.chat.front import complete
from emulator.fronts.chat.wire import FIELDS
from emulator.settings.settings import Settings
from emulator.web.middleware.in_flight import current
from emulator.web.routes.replies import (
    client,
    order,
    parsed_body,
    plain_answer,
    streamed_answer,
)


def add_routes(api: Blueprint, pipeline: Pipeline, settings: Settings) -> None:
    @api.post("/chat/completions")
    def chat_completions() -> Response:
        chat = parsed_body(lambda body: parse_chat(body, client(), pipeline.part_cache))
        check_fields(FIELDS, chat.model_extra or {})
        answer_request = pipeline.read(chat, client(), interpreter_by_default=True, order=order())
        this = current.get().request
        chunks = complete(pipeline, answer_request, this.host_url[:-1])
        if chat.stream:
            return streamed_answer(chunks, settings, answer_request.omitted)
        return plain_answer(chunks, collect, answer_request.omitted)
