"""The lanes of a WebSocket connection: each message is a request, each event of its answer a message.

    message ──► response.create ──► its lane ──► POST /v1/responses, streamed, within this process ──► events
            └─► response.steer  ──► response.steer.failed
            └─► anything else   ──► error

A lane is a ``stream_id``, or none. It opens with a create and has a thread until no create of it is pending:

    (no lane) ──create──► answering ──last event──► (no lane)
                           │      ▲
                           └create┘ pending, answered in order

At most `_MAX_LANES` are open. Messages are dispatched as they arrive, also while lanes answer; each create
passes the same checks, limits and records as a request over HTTP. Every event and error of a create repeats
its ``stream_id``, which goes no further.

A response that is not stored can be continued on its connection, from any lane, as OpenAI's can, while it is
among the last `_MAX_UNSTORED`. A continuation that fails ends that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from emulator.core import client_disconnect, json_codec
from emulator.core.client_disconnect import ClientDisconnect, stop_on_disconnect
from emulator.core.errors import BadRequest, EmulatorError, RateLimited
from emulator.core.events import new_id
from emulator.core.protocol import read_object
from emulator.fronts.responses.items import Json, check_outputs, normalize, parse
from emulator.upstream.sse import SSEDecoder
from emulator.web.middleware.inner_post import InnerPost

_MAX_LANES = 8
_MAX_PENDING = 16
"""Creates of one connection that wait for an answer."""
_MAX_UNSTORED = 8
_MAX_ID = 64
_GRACE_SECONDS = 0.5
"""A client that has read the last event of one lane may open the next one before the first has closed."""
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error")
_STEERING = "This model does not support steering; send the input in a response.create."

log = structlog.get_logger()


class TooManyPending(Exception):
    """The client sends creates faster than its lanes answer them."""


class _Lane:
    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.pending: deque[str | bytes] = deque()
        """Messages as they were sent: parsed they take several times the memory."""
        self.response_id = ""
        """The response that is being made."""
        self.is_ending = False
        """The last event of the answer is being sent."""


@dataclass(frozen=True)
class _Unstored:
    before: str | None
    """The stored response that it continues."""
    items: list[Json]
    """The items after that one, its own output among them."""


class Lanes:
    """Made within the request that opened the connection. Safe to share between threads."""

    def __init__(self, send: Callable[[str], None], end: Callable[[], None]) -> None:
        """``send`` sends a message and raises OSError; ``end`` closes the connection."""
        self._send_text = send
        self._end = end
        self._context = copy_context()
        self._lock = threading.Condition()
        """Notified when a lane closes."""
        self._lanes: dict[str, _Lane] = {}
        self._unstored: dict[str, _Unstored] = {}
        """By the response's id, the oldest one first."""

    @property
    def are_open(self) -> bool:
        return bool(self._lanes)

    def dispatch(self, message: str | bytes) -> None:
        """Answer a message, in a thread of its lane if it is a create.

        Raises `TooManyPending` and OSError.
        """
        stream_id = ""
        try:
            fields = _read(message)
            stream_id = _stream_id(fields)
            match fields.get("type"):
                case "response.create":
                    self._enqueue(stream_id, message)
                case "response.steer":
                    self._refuse_steering(fields)
                case _:
                    raise BadRequest("A message must be of the type response.create.", "type")
        except EmulatorError as error:
            self._send_error(stream_id, error.status, error.body())

    def join(self) -> None:
        """Wait for the lanes' threads, which end soon after the connection."""
        for lane in [*self._lanes.values()]:
            lane.thread.join()

    def _enqueue(self, stream_id: str, message: str | bytes) -> None:
        with self._lock:
            lane = self._lanes.get(stream_id)
            if lane is not None:
                if sum(len(one.pending) for one in self._lanes.values()) >= _MAX_PENDING:
                    raise TooManyPending
                lane.pending.append(message)
                return
            ends_soon = any(one.is_ending for one in self._lanes.values())
            is_free = self._lock.wait_for(
                lambda: len(self._lanes) < _MAX_LANES, _GRACE_SECONDS if ends_soon else 0
            )
            if not is_free:
                raise RateLimited(
                    f"This connection has {_MAX_LANES} lanes that answer, its limit. "
                    "Retry when one of them has finished.",
                    "stream_id",
                    "too_many_lanes",
                )
            context = self._context.copy()
            thread = threading.Thread(
                target=context.run, args=(self._answer_lane, stream_id), daemon=True
            )
            thread.start()  # it waits for the lock
            lane = self._lanes[stream_id] = _Lane(thread)
            lane.pending.append(message)

    def _answer_lane(self, stream_id: str) -> None:
        try:
            while (message := self._next(stream_id)) is not None:
                try:
                    self._answer(stream_id, message)
                except EmulatorError as error:
                    self._send_error(stream_id, error.status, error.body())
        except Exception as error:
            if not isinstance(error, OSError):  # otherwise the client is gone
                log.exception("a lane did not end well")
            self._end()
            self._lanes.pop(stream_id)

    def _next(self, stream_id: str) -> str | bytes | None:
        """The next message of the lane. Closes the lane if there is none."""
        with self._lock:
            lane = self._lanes[stream_id]
            lane.response_id, lane.is_ending = "", False
            if lane.pending:
                return lane.pending.popleft()
            del self._lanes[stream_id]
            self._lock.notify()
            return None

    def _answer(self, stream_id: str, message: str | bytes) -> None:
        fields = {**_read(message), "stream": True, "background": None}
        for name in ("type", "stream_id"):
            fields.pop(name, None)
        generates = fields.pop("generate", True) is not False
        items, before = normalize(fields.get("input") or []), fields.get("previous_response_id")
        continued = self._unstored.get(before) if isinstance(before, str) else None
        response = None
        try:
            if continued is not None:
                if continued.before is None:  # otherwise the route knows all calls
                    check_outputs(parse(continued.items), parse(items))
                items = [*continued.items, *items]
                fields |= {"previous_response_id": continued.before, "input": items}
            answer = self._stream if generates else self._prepare
            response = answer(stream_id, fields)
        finally:
            if response is None:
                self._forget(before)
        if response is not None and not (generates and fields.get("store") is not False):
            found = _Unstored(fields.get("previous_response_id"), [*items, *response["output"]])
            self._remember(response["id"], found)

    def _remember(self, response_id: str, response: _Unstored) -> None:
        with self._lock:
            self._unstored[response_id] = response
            if len(self._unstored) > _MAX_UNSTORED:
                del self._unstored[next(iter(self._unstored))]

    def _forget(self, response_id: object) -> None:
        if isinstance(response_id, str):
            with self._lock:
                self._unstored.pop(response_id, None)

    def _refuse_steering(self, fields: Json) -> None:
        """Return the client's words: a response that is being made takes no more input.

        Raises `BadRequest` if the message does not say what shall be steered, and how.
        """
        steer = {name: fields.get(name) for name in ("input", "previous_response_id")}
        if not isinstance(steer["previous_response_id"], str):
            place = "previous_response_id"
            raise BadRequest(f"{place} must name the response to steer.", place)
        if not isinstance(steer["input"], (str, list)):
            raise BadRequest("input must be a string or a list.", "input")
        with self._lock:
            lanes = (
                name
                for name, lane in self._lanes.items()
                if lane.response_id == steer["previous_response_id"]
            )
            stream_id = next(lanes, "")
        code, kind = "steering_not_supported", BadRequest.type
        error = {"code": code, "message": _STEERING, "type": kind}
        event = {"type": "response.steer.failed", "sequence_number": 0}
        self._send(stream_id, {**event, "error": error, "steer": steer})

    def _prepare(self, stream_id: str, fields: Json) -> Json:
        """The client prepares a conversation: a later create continues this response."""
        response: Json = {
            "id": new_id("resp_"), "object": "response", "status": "completed", "output": [],
            "model": fields.get("model"),
        }  # fmt: skip
        for number, name in enumerate(("response.created", "response.completed")):
            self._send(stream_id, {"type": name, "sequence_number": number, "response": response})
        return response

    def _stream(self, stream_id: str, fields: Json) -> Json | None:
        """Send the answer's events. Returns the response if it has ended well."""
        answer, context = _Answer(partial(self._send, stream_id)), Context()
        disconnect = ClientDisconnect()  # a stream that is closed reports one
        context.run(client_disconnect.current.set, disconnect)
        with stop_on_disconnect(disconnect.report):
            post = InnerPost(json_codec.dumps(fields))
            body = context.run(post.application, post.environ, answer.start)
            try:
                for data in _within(context, body):
                    answer.write(data)
            finally:
                context.run(getattr(body, "close", lambda: None))
        if answer.status >= 400:
            self._send_error(stream_id, answer.status, json_codec.loads(bytes(answer.error)))
        return answer.response

    def _send(self, stream_id: str, event: Json) -> None:
        """Raises OSError."""
        if (lane := self._lanes.get(stream_id)) is not None:
            if event["type"] == "response.created":
                lane.response_id = event["response"]["id"]
            lane.is_ending = event["type"] in _LAST_EVENTS
        name = {"stream_id": stream_id} if stream_id else {}
        self._send_text(json_codec.dumps({**event, **name}).decode())

    def _send_error(self, stream_id: str, status: int, body: Any) -> None:
        self._send(stream_id, {"type": "error", "status": status, **body})


def _read(message: str | bytes) -> Json:
    """Raises `BadRequest`."""
    return read_object(message if isinstance(message, bytes) else message.encode())


def _stream_id(fields: Json) -> str:
    """The lane of a message, "" without one. Raises `BadRequest`."""
    found = fields.get("stream_id")
    if found is None:
        return ""
    if isinstance(found, str) and 0 < len(found) <= _MAX_ID and found.isprintable():
        return found
    raise BadRequest(f"stream_id must have 1 to {_MAX_ID} printable characters.", "stream_id")


class _Answer:
    """Turns what a WSGI application writes into events. The thread that pings a silent stream writes, too."""

    def __init__(self, send: Callable[[Json], None]) -> None:
        self._send = send
        self._decoder = SSEDecoder()
        self.status = 200
        self.error = bytearray()
        self.response: Json | None = None
        """The response if it has ended well."""

    def start(
        self, status: str, _headers: object, _problem: object = None
    ) -> Callable[[bytes], Any]:
        self.status = int(status.partition(" ")[0])
        return self.write

    def write(self, data: bytes) -> None:
        """Raises OSError."""
        if self.status >= 400:
            self.error += data
            return
        for event in map(json_codec.loads, self._decoder.feed(data)):
            if event["type"] in ("response.completed", "response.incomplete"):
                self.response = event["response"]
            self._send(event)


def _within(context: Context, body: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of ``body``, each made in ``context``."""
    pieces = iter(body)
    while (data := context.run(next, pieces, None)) is not None:
        yield data
