"""`/responses`: answers in the shape of OpenAI's Responses API, and those that are kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from flask import Blueprint, Response, request

from emulator.core.errors import BadRequest, EmulatorError, MethodNotAllowed
from emulator.fronts.responses.background import BackgroundResponses, BackgroundState
from emulator.fronts.responses.front import ResponseFront, StreamEvents, last
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.request import ResponseRequest, parse_request
from emulator.fronts.responses.response import visible
from emulator.fronts.responses.stored import StoredResponse, StoredResponses
from emulator.fronts.responses.writer import ResponseWriter
from emulator.settings.settings import Settings
from emulator.storage.paging import page_among
from emulator.upstream.sse import PING, encode_json
from emulator.web.routes.replies import (
    client,
    json_reply,
    order,
    parsed_body,
    plain_answer,
    start_in_background,
    stream_reply,
    streamed_answer,
    with_answer_headers,
    with_omitted,
)
from emulator.web.routes.streaming import Frames


def add_routes(
    api: Blueprint, front: ResponseFront, settings: Settings, background: BackgroundResponses
) -> None:
    routes = _Routes(front, front.stored, settings, background)
    one = "/responses/<response_id>"
    api.post("/responses")(routes.create_response)
    api.add_url_rule("/responses", view_func=routes.open_websocket, websocket=True)
    api.get("/responses")(refuse_get)
    api.post("/responses/input_tokens")(routes.count_input_tokens)
    api.post("/responses/compact")(routes.compact_response)
    api.get(one)(routes.retrieve_response)
    api.delete(one)(routes.delete_response)
    api.get(f"{one}/input_items")(routes.list_input_items)
    api.post(f"{one}/cancel")(routes.cancel_response)


def refuse_get() -> Response:
    raise MethodNotAllowed("GET /v1/responses: use POST, or a WebSocket.")


@dataclass(frozen=True)
class _Routes:
    front: ResponseFront
    stored: StoredResponses
    settings: Settings
    background: BackgroundResponses

    def create_response(self) -> Response:
        response_request, input_items = self._parsed()
        answer = self.front.answer(client(), response_request, input_items, order())
        include = response_request.include or ()
        if response_request.stream:
            frames = _frames(answer.writer, include)
            return streamed_answer(answer.events, self.settings, answer.omitted, frames)
        if response_request.background:
            if not self.stored.is_kept:
                raise BadRequest(
                    "No response can be made in the background: this proxy stores none."
                )
            queued = start_in_background(self.background, answer)
            return with_answer_headers(json_reply(queued), None, answer.omitted)

        def fold(events: StreamEvents) -> Json:
            return visible(last(events)["response"], include)

        return plain_answer(answer.events, fold, answer.omitted)

    def _parsed(self, model: str | None = None) -> tuple[ResponseRequest, list[Json]]:
        cache = self.front.pipeline.part_cache
        return parsed_body(lambda body: parse_request(body, client(), cache, model=model))

    def open_websocket(self) -> Response:
        from emulator.web.routes.websocket import answer_websocket  # 1 MiB that few clients need

        return answer_websocket(self.settings.max_body_bytes)

    def count_input_tokens(self) -> Response:
        count_request, input_items = self._parsed(model="any")
        counted, omitted = self.front.input_tokens(client(), count_request, input_items)
        return with_omitted(json_reply(counted), omitted)

    def compact_response(self) -> Response:
        compact_request, input_items = self._parsed()
        compacted, omitted = self.front.compact(client(), compact_request, input_items)
        return with_omitted(json_reply(compacted), omitted)

    def retrieve_response(self, response_id: str) -> Response:
        include = _include()
        after = request.args.get("starting_after", "-1")
        if not (after == "-1" or (after.isascii() and after.isdecimal())):
            raise BadRequest("starting_after must be a sequence number.", "starting_after")
        found = self.stored.get(client(), response_id)
        if request.args.get("stream", "").lower() not in ("true", "1"):
            current = self.background.current(self._state(found))
            return json_reply(visible(current, include))
        if found.response["status"] not in ("completed", "incomplete"):
            raise BadRequest(
                "Only a finished response can be streamed again; poll this one.", "stream"
            )
        replayed = self.stored.events(client(), found.response)
        events = [event for event in replayed if event["sequence_number"] > int(after)]
        return stream_reply(iter([_frame(event, include) for event in events]))

    def delete_response(self, response_id: str) -> Response:
        self.stored.delete(client(), response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})

    def list_input_items(self, response_id: str) -> Response:
        include = _include()
        found = self.stored.get(client(), response_id)
        listed = [visible(item, include) for item in found.input]
        return json_reply(page_among(listed, request.args))

    def cancel_response(self, response_id: str) -> Response:
        found = self.stored.get(client(), response_id)
        if not found.response["background"]:
            raise BadRequest("Only background responses can be cancelled.")
        return json_reply(self.background.cancel(self._state(found)))

    def _state(self, found: StoredResponse) -> BackgroundState:
        key, owner = found.response["id"], client()
        save = partial(self.stored.save, owner, input_items=found.input)
        return BackgroundState(found.response, save, lambda: self.stored.get(owner, key).response)


def _include() -> list[str]:
    return [*request.args.getlist("include"), *request.args.getlist("include[]")]


def _frame(event: Json, include: Collection[str]) -> bytes:
    return encode_json(visible(event, include), event["type"])


def _frames(writer: ResponseWriter, include: Collection[str]) -> Frames:
    def frame(event: Json) -> bytes:
        return _frame(event, include)

    def failed(error: EmulatorError) -> bytes:
        return b"".join(map(frame, writer.failure_events(error)))

    def ping() -> bytes:
        return b"".join(map(frame, writer.ping_events())) or PING

    return Frames(frame, failed, ping=ping)
