"""The line of a response, in order: request -> items and what came before -> chat -> answer -> stream.

Knows nothing of Flask.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from emulator.answering.answer_request import AnswerRequest
from emulator.answering.pipeline import Pipeline
from emulator.answering.relay import expand_relayed_chunks
from emulator.errors import BadRequest, EmulatorError
from emulator.events import UpstreamAccepted, new_id
from emulator.protocol import Message
from emulator.responses import compaction, items
from emulator.responses.chat import chat_request, told_as_sent
from emulator.responses.conversations import Conversations
from emulator.responses.event_log import EventLog
from emulator.responses.history import messages
from emulator.responses.items import Json
from emulator.responses.request import ResponseRequest
from emulator.responses.response import begun
from emulator.responses.stored import StoredResponses
from emulator.responses.tools import further, offer
from emulator.responses.writer import ResponseWriter, usage_told
from emulator.settings import Order

log = structlog.get_logger()

_ENDS = ("response.completed", "response.incomplete")

StreamEvents = Iterator[Json | UpstreamAccepted]


@dataclass(frozen=True)
class Answer:
    """A response as it is made."""

    writer: ResponseWriter
    """Of the event that tells a failure."""
    events: StreamEvents
    """The stream's events, `UpstreamAccepted` first. Raises `EmulatorError`."""
    dropped: tuple[str, ...]
    """Types of hosted tools that were left out."""
    begun: Json
    """The response in front of its first item."""
    keep: Callable[[Json], None]
    """Keeps the response as it stands, if it is to be kept."""


@dataclass(frozen=True)
class _Read:
    answer_request: AnswerRequest
    before: list[Json]
    """The items of the responses before."""
    input_items: list[Json]
    brought: list[Json]
    """The tools that items bring along."""


@dataclass(frozen=True)
class ResponseFront:
    pipeline: Pipeline
    stored: StoredResponses
    conversations: Conversations

    def answer(
        self,
        client: str,
        request: ResponseRequest,
        input_items: list[Json],
        order: Order | None = None,
    ) -> Answer:
        """Raises `BadRequest`, `NotFound` or `StoreUnavailable` at once."""
        read = self._read(client, request, input_items, order=order)
        answer_request, input_items, brought = read.answer_request, read.input_items, read.brought
        answer = expand_relayed_chunks(answer_request, self.pipeline.answer(answer_request))
        start, event_log = begun(request), EventLog()
        writer = ResponseWriter(start, brought)
        events = writer.write(event_log.record(answer))
        keep: Callable[[Json], None] = _not_kept
        if request.store is not False:
            keep = partial(
                self.stored.keep,
                client,
                begun=start,
                input_items=input_items,
                tools=brought,
                events=event_log,
            )
        if request.conversation is not None:
            keep = self._in_conversation(keep, client, request.conversation, input_items)
        if keep is not _not_kept:
            events = _keeping(keep, events)
        return Answer(writer, events, answer_request.unsupported_tools, start, keep)

    def _in_conversation(
        self, keep: Callable[[Json], None], client: str, key: str, input_items: list[Json]
    ) -> Callable[[Json], None]:
        """``keep``, which also adds a turn that is whole to the conversation."""

        def kept(response: Json) -> None:
            keep(response)
            if response["status"] in ("completed", "incomplete"):
                try:
                    self.conversations.add(client, key, [*input_items, *response["output"]])
                except EmulatorError as error:  # the answer is there all the same
                    log.warning("turn not added to its conversation", reason=error.message)

        return kept

    def input_tokens(self, client: str, request: ResponseRequest, input_items: list[Json]) -> Json:
        """How long the prompt is, as near as can be told. Raises as `answer`."""
        answer_request = self._read(client, request, input_items).answer_request
        tokens = self.pipeline.prompt_tokens(answer_request)
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def compact(self, client: str, request: ResponseRequest, input_items: list[Json]) -> Json:
        """The conversation so far, as what the user said and the model's summary. Raises `EmulatorError`."""
        plain = request.model_copy(update={"tools": None, "tool_choice": None, "text": None})
        read = self._read(client, plain, input_items, further_messages=[compaction.question()])
        answer = expand_relayed_chunks(
            read.answer_request, self.pipeline.answer(read.answer_request)
        )
        summary, usage = compaction.collected(answer)
        return {
            "id": new_id("resp_"),
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": compaction.compacted([*read.before, *read.input_items], summary),
            "usage": usage_told(usage),
        }

    def _read(
        self,
        client: str,
        request: ResponseRequest,
        input_items: list[Json],
        *,
        order: Order | None = None,
        further_messages: Sequence[Message] = (),
    ) -> _Read:
        """What a request asks for, with all that came before. Raises as `answer`."""
        input_items = self.stored.resolved(client, input_items)
        before = self.stored.history(client, request.previous_response_id)
        if request.conversation is not None:
            before = self.conversations.get(client, request.conversation).items
        history_items = [
            *items.parse(self.stored.with_outputs(client, before), "previous_response"),
            *items.parse(self.stored.with_outputs(client, input_items)),
        ]
        containers = [
            item.container_id for item in history_items if isinstance(item, items.CodeCall)
        ]
        tools = request.tools or []
        brought = further([*before, *input_items], tools)
        offered = offer([*tools, *brought])
        try:
            told = messages(history_items)
            if not told and further_messages:
                raise BadRequest("input is missing: there is nothing to sum up.", param="input")
            chat = chat_request(request, [*told, *further_messages], offered.tools, containers)
            answer_request = self.pipeline.read(chat, client, order=order)
        except BadRequest as error:
            raise told_as_sent(error, offered.places) from error
        return _Read(answer_request, before, input_items, brought)


def _not_kept(response: Json) -> None:
    """For who said ``store: false``."""


def _keeping(keep: Callable[[Json], None], events: StreamEvents) -> StreamEvents:
    """The events; the response is kept before its client learns that it is whole."""
    for event in events:
        if not isinstance(event, UpstreamAccepted) and event["type"] in _ENDS:
            keep(event["response"])
        yield event


def last(events: StreamEvents) -> Json:
    """Reads a stream to its end. Raises `EmulatorError`."""
    [event] = deque(
        (event for event in events if not isinstance(event, UpstreamAccepted)), maxlen=1
    )
    return event
