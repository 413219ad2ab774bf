"""`/chat/completions`."""

from __future__ import annotations

from flask import Blueprint, Response, request

from emulator.answering.pipeline import Pipeline
from emulator.core.protocol import parse_chat
from emulator.fronts.chat.chunks import collect
from emulator.fronts.chat.front import complete
from emulator.settings.settings import Settings
from emulator.web.routes.replies import (
    client,
    order,
    plain_answer,
    read_body,
    streamed_answer,
)


def add_routes(api: Blueprint, pipeline: Pipeline, settings: Settings) -> None:
    @api.post("/chat/completions")
    def chat_completions() -> Response:
        chat = parse_chat(read_body(settings), client(), pipeline.part_cache)
        answer_request = pipeline.read(chat, client(), interpreter_by_default=True, order=order())
        chunks = complete(pipeline, answer_request, f"{request.scheme}://{request.host}")
        if chat.stream:
            return streamed_answer(chunks, settings, answer_request.unsupported_tools)
        return plain_answer(chunks, collect, answer_request.unsupported_tools)
