"""`/messages`: answers in the shape of Anthropic's Messages API."""

from __future__ import annotations

import structlog
from flask import Blueprint, Response, request

from emulator.answering.pipeline import Pipeline
from emulator.anthropic.front import answer, count_tokens
from emulator.anthropic.request import CountRequest, MessagesRequest
from emulator.anthropic.writer import collect, error_body
from emulator.protocol import parse_body
from emulator.settings import Settings
from emulator.upstream.sse import encode_json
from emulator.web.routes.replies import client, json_reply, stream_reply, tell
from emulator.web.routes.streaming import EventStream, Frames

log = structlog.get_logger()

FRAMES = Frames(
    lambda event: encode_json(event, event["type"]),
    lambda error: encode_json(error_body(error), "error"),
)


def add_routes(api: Blueprint, pipeline: Pipeline, settings: Settings) -> None:
    @api.post("/messages")
    def create_message() -> Response:
        body = request.get_data()
        if settings.log_bodies:
            log.info("request body", body=body.decode(errors="replace"))
        asked = parse_body(body, MessagesRequest)
        message = answer(pipeline, asked, client())
        if not asked.stream:
            opened = next(message.events)
            return tell(json_reply(collect(message.events)), opened, message.dropped)
        stream = EventStream(message.events, settings.ping_seconds, FRAMES)
        # A refusal that the upstream is quick to give comes out here, and so keeps its status.
        first = stream.first()
        return tell(stream_reply(stream), first, message.dropped)

    @api.post("/messages/count_tokens")
    def count_message_tokens() -> Response:
        asked = parse_body(request.get_data(), CountRequest)
        return json_reply({"input_tokens": count_tokens(pipeline, asked, client())})
