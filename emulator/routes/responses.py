"""`/responses` and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator

import structlog
from flask import Blueprint, Response, request

from emulator.errors import BadRequest, EmulatorError
from emulator.events import Opened
from emulator.pipeline import Pipeline
from emulator.responses import items
from emulator.responses.chat import chat_request, told_as_sent
from emulator.responses.history import messages
from emulator.responses.items import Json
from emulator.responses.request import parse_request
from emulator.responses.response import begun, shown
from emulator.responses.writer import ResponseWriter
from emulator.routes.reply import json_reply, stream_reply
from emulator.settings import Settings
from emulator.sse import encode_json
from emulator.streaming import EventStream, Frames

log = structlog.get_logger()


def add_routes(api: Blueprint, pipeline: Pipeline, settings: Settings) -> None:
    @api.post("/responses")
    def create_response() -> Response:
        body = request.get_data()
        if settings.log_bodies:
            log.info("request body", body=body.decode(errors="replace"))
        asked, written = parse_request(body)
        writer = ResponseWriter(begun(asked))
        try:
            answer = pipeline.events(chat_request(asked, messages(items.parse(written))))
        except BadRequest as error:
            raise told_as_sent(error) from error
        events = writer.write(answer)
        # The upstream's refusal comes out here, and so keeps its status in a stream too.
        opened = next(events)
        outputs = asked.includes_code_outputs
        if asked.stream:
            frames = _frames(writer, code_outputs=outputs)
            response = stream_reply(EventStream(opened, events, settings.ping_seconds, frames))
        else:
            response = json_reply(shown(_last(events)["response"], code_outputs=outputs))
        if isinstance(opened, Opened):
            response.headers["x-emulator-turns-saved"] = str(opened.turns_saved)
        return response


def _frames(writer: ResponseWriter, *, code_outputs: bool) -> Frames:
    def frame(event: Json) -> bytes:
        return encode_json(shown(event, code_outputs=code_outputs), event["type"])

    def failed(error: EmulatorError) -> bytes:
        return frame(writer.failed(error))

    return Frames(frame, failed)


def _last(events: Iterator[Json | Opened]) -> Json:
    """Reads the stream to its end. Raises `EmulatorError`."""
    last: Json = {}
    for event in events:
        if not isinstance(event, Opened):
            last = event
    return last
