"""`/messages`: answers in the shape of Anthropic's Messages API."""

from __future__ import annotations

from flask import Blueprint, Response, request

from emulator.answering.pipeline import Pipeline
from emulator.core.protocol import parse_conversation
from emulator.fronts.anthropic.error_body import error_body
from emulator.fronts.anthropic.front import answer, count_tokens
from emulator.fronts.anthropic.message import collect
from emulator.fronts.anthropic.request import CountRequest, MessagesRequest
from emulator.fronts.anthropic.threads import Threads
from emulator.settings.settings import Settings
from emulator.upstream.sse import encode_json
from emulator.web.routes.replies import (
    Model,
    client,
    json_reply,
    parsed_body,
    plain_answer,
    streamed_answer,
    with_omitted,
)
from emulator.web.routes.streaming import Frames

_PING = encode_json({"type": "ping"}, "ping")
FRAMES = Frames(
    lambda event: encode_json(event, event["type"]),
    lambda error: encode_json(error_body(error), "error"),
    ping=lambda: _PING,
)


def add_routes(api: Blueprint, pipeline: Pipeline, threads: Threads, settings: Settings) -> None:
    def parsed(model: type[Model]) -> Model:
        return parsed_body(
            lambda body: parse_conversation(body, model, client(), pipeline.part_cache)
        )

    @api.post("/messages")
    def create_message() -> Response:
        message_request = parsed(MessagesRequest)
        message = answer(pipeline, threads, message_request, client(), _betas())
        if message_request.stream:
            reply = streamed_answer(message.events, settings, message.omitted, FRAMES)
        else:
            reply = plain_answer(message.events, collect, message.omitted)
        return reply

    @api.post("/messages/count_tokens")
    def count_message_tokens() -> Response:
        count_request = parsed(CountRequest)
        counted, omitted = count_tokens(pipeline, count_request, client(), _betas())
        return with_omitted(json_reply(counted), omitted)


def _betas() -> str:
    return ",".join(request.headers.getlist("anthropic-beta"))
