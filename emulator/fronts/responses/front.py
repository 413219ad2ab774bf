"""Answer a Responses request: request -> items and history -> chat request -> answer -> stream.

Knows nothing of Flask.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from emulator.answering import summary
from emulator.answering.pipeline import Pipeline, without_output
from emulator.answering.relay import expand_relayed_chunks
from emulator.conversation.answer_request import AnswerRequest, Omitted
from emulator.core.errors import BadRequest, EmulatorError
from emulator.core.events import AnswerEvent, UpstreamAccepted, new_id
from emulator.core.protocol import ChatCompletionRequest
from emulator.fronts.responses import compaction, items
from emulator.fronts.responses.chat import chat_request, client_places
from emulator.fronts.responses.configuration import EffectiveSettings
from emulator.fronts.responses.conversations import Conversations
from emulator.fronts.responses.event_log import EventLog
from emulator.fronts.responses.history import messages
from emulator.fronts.responses.hosted_items import check_approvals, listed_servers, used_containers
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.loaded_tools import with_loads
from emulator.fronts.responses.request import ResponseRequest
from emulator.fronts.responses.response import initial_response
from emulator.fronts.responses.stored import StoredResponses
from emulator.fronts.responses.tools import added_tools, to_chat_tools
from emulator.fronts.responses.writer import ResponseWriter, usage_json
from emulator.history import current_turn
from emulator.settings.settings import Order

log = structlog.get_logger()

_ENDS = ("response.completed", "response.incomplete")

StreamEvents = Iterator[Json | UpstreamAccepted]


@dataclass(frozen=True)
class ResponseStream:
    """The stream of one response."""

    writer: ResponseWriter
    """Writes the events after a failure."""
    events: StreamEvents
    """The stream's events, `UpstreamAccepted` first. The iterator raises `EmulatorError`."""
    omitted: Omitted
    """What of the request has no effect."""
    initial: Json
    """The response before its first item."""
    save: Callable[[Json], bool]
    """Stores the response in its current state. Returns False if that failed, or the client does not want it
    (``store: false``)."""

    def failed(self, error: EmulatorError) -> Json:
        """The response after a failure."""
        response: Json = self.writer.failed(error)["response"]
        return response


@dataclass(frozen=True)
class _ReadRequest:
    answer_request: AnswerRequest
    answer: Iterator[AnswerEvent]
    request: ResponseRequest
    """With the settings in effect."""
    history: list[Json]
    """The items of earlier responses."""
    input_items: list[Json]
    added_tools: list[Json]
    """The tools that items add."""


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
    ) -> ResponseStream:
        """Start the answer, or repeat that of an earlier request in the same turn of a conversation.

        Raises `BadRequest`, `NotFound`, `Unprocessable` or `StoreUnavailable` before the first event.
        """
        note_end: Callable[[str], None] | None = None
        turns, turn_request = self.pipeline.turns, current_turn.get()
        in_conversation = request.conversation is not None and not request.background
        if in_conversation and turn_request is not None:
            response_id = turns.find(client, turn_request).response
            if response_id and (known := self.stored.find(client, response_id)) is not None:
                return self._repeated(client, request, known.response)
            note_end = partial(turns.note_response, client, turn_request)
        read = self._read(client, request, input_items, order=order)
        answer_request, input_items, tools = (
            read.answer_request,
            read.input_items,
            read.added_tools,
        )
        answer = without_output(read.answer, "stop") if request.prewarms else read.answer
        items_so_far = [*read.history, *input_items]
        answer = with_loads(answer, request.tools or (), items_so_far, answer_request.hosted)
        start, event_log = initial_response(read.request), EventLog()
        writer = ResponseWriter(start, tools)
        events = writer.write(event_log.record(answer))
        save: Callable[[Json], bool] = _do_not_save
        if request.store is not False:
            save = partial(self.stored.save, client, input_items=input_items)
            if request.stream or request.background:
                recorded = (client, start, event_log, tools, writer.pings)
                save = _after(partial(self.stored.save_stream, *recorded), save)
        if request.conversation is not None:
            save = self._save_in_conversation(
                save, client, request.conversation, input_items, note_end
            )
        if save is not _do_not_save:
            events = _before_end(save, events)
        if request.conversation is not None:
            turn = self.conversations.turn(client, request.conversation, read.history)
            events = _within(turn, events)
        return ResponseStream(writer, events, answer_request.omitted, start, save)

    def _repeated(self, client: str, request: ResponseRequest, response: Json) -> ResponseStream:
        """The stream of a stored response."""
        events: list[Json | UpstreamAccepted] = [UpstreamAccepted()]
        if request.stream:
            events += self.stored.events(client, response)
        else:
            events.append({"type": f"response.{response['status']}", "response": response})
        return ResponseStream(
            ResponseWriter(response, []), iter(events), Omitted(), response, _do_not_save
        )

    def _events(self, request: AnswerRequest) -> Iterator[AnswerEvent]:
        return expand_relayed_chunks(request, self.pipeline.answer(request))

    def _read_chat(
        self, client: str, order: Order | None, chat: ChatCompletionRequest
    ) -> AnswerRequest:
        request = self.pipeline.read(chat, client, order=order, asks_approval=True)
        return replace(request, shows_hosted=True)

    def _save_in_conversation(
        self,
        save: Callable[[Json], bool],
        client: str,
        key: str,
        input_items: list[Json],
        note_end: Callable[[str], None] | None,
    ) -> Callable[[Json], bool]:
        """Return ``save``, extended to add a finished turn to the conversation, and to note that."""

        def save_both(response: Json) -> bool:
            is_saved = save(response)
            if response["status"] in ("completed", "incomplete"):
                try:
                    self.conversations.add(client, key, [*input_items, *response["output"]])
                except EmulatorError as error:  # the client gets its answer anyway
                    log.warning("turn not added to its conversation", reason=error.message)
                    return False
                if note_end is not None and is_saved:
                    note_end(response["id"])
            return is_saved

        return save_both

    def input_tokens(
        self, client: str, request: ResponseRequest, input_items: list[Json]
    ) -> tuple[Json, Omitted]:
        """Estimate the tokens of the prompt. Raises as `answer`."""
        answer_request = self._read(client, request, input_items).answer_request
        tokens = self.pipeline.prompt_tokens(answer_request)
        counted = {"object": "response.input_tokens", "input_tokens": tokens}
        return counted, answer_request.omitted

    def compact(
        self, client: str, request: ResponseRequest, input_items: list[Json]
    ) -> tuple[Json, Omitted]:
        """Replace the conversation with the user's messages and the model's summary. Raises
        `EmulatorError`."""
        read = self._read(client, request, input_items, compacts=True)
        text, usage = summary.collected(read.answer)
        compacted = {
            "id": new_id("resp_"),
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": compaction.compacted([*read.history, *read.input_items], text),
            "usage": usage_json(usage),
        }
        return compacted, read.answer_request.omitted

    def _read(
        self,
        client: str,
        request: ResponseRequest,
        input_items: list[Json],
        *,
        order: Order | None = None,
        compacts: bool = False,
    ) -> _ReadRequest:
        """Read a request and its history; with ``compacts``, or if its input ends with a trigger, as a
        request for a summary. Raises as `answer`."""
        is_triggered = compaction.is_triggered(input_items)
        input_items = compaction.without_trigger(input_items)
        input_items = self.stored.resolved(client, input_items)
        history = self.stored.history(client, request.previous_response_id)
        if request.conversation is not None:
            history = self.conversations.get(client, request.conversation).items
        parse = partial(items.parse, client=client, cache=self.pipeline.part_cache)
        before = parse(self.stored.with_outputs(client, history), "previous_response")
        new = parse(self.stored.with_outputs(client, input_items))
        if request.previous_response_id is not None:
            items.check_outputs(before, new)
        parsed_items = [*before, *new]
        check_approvals(history, input_items)
        configuration = (
            EffectiveSettings(request)
            .updated(history, "previous_response")
            .updated(input_items, "input")
        )
        tools = request.tools or []
        added = added_tools(history, tools, "previous_response")
        added += added_tools(input_items, [*tools, *(tool for _, tool in added)], "input")
        offered = to_chat_tools(tools, added)
        answered = configuration.request
        try:
            chat_messages = messages(parsed_items)
            if (compacts or is_triggered) and not chat_messages:
                raise BadRequest("input is missing: there is nothing to summarize.", param="input")
            containers = used_containers([*history, *input_items])
            chat = chat_request(answered, chat_messages, offered.tools, containers)
            listed = listed_servers([*history, *input_items])
            update = {"listed_servers": listed, "shows_programs": offered.shows_programs}
            chat = chat.model_copy(update=update)
            read_chat = partial(self._read_chat, client, order)
            if compacts or is_triggered:
                answer_request = read_chat(summary.for_summary(chat))
                answer = self._events(answer_request)
            else:
                answer_request, answer = summary.answer_in_context(self._events, read_chat, chat)
        except EmulatorError as error:
            places = client_places(answered, offered.places, configuration.format_place)
            raise error.moved(places) from error
        return _ReadRequest(
            answer_request,
            summary.summarized(answer) if is_triggered else answer,
            configuration.request,
            history,
            input_items,
            [tool for _, tool in added],
        )


def _do_not_save(response: Json) -> bool:  # noqa: ARG001
    """The ``save`` of a response with ``store: false``."""
    return False


def _after(first: Callable[[], None], save: Callable[[Json], bool]) -> Callable[[Json], bool]:
    """Return ``save``, which calls ``first`` before a final state."""

    def save_both(response: Json) -> bool:
        if response["status"] in ("completed", "incomplete"):
            first()
        return save(response)

    return save_both


def _before_end(save: Callable[[Json], bool], events: StreamEvents) -> StreamEvents:
    """Pass on the events, and save the response before its client receives the last event.

    The last event says ``store: false`` if that failed: the response cannot be continued by its id.
    """
    for event in events:
        match event:
            case dict() if event["type"] in _ENDS and not save(event["response"]):
                yield {**event, "response": {**event["response"], "store": False}}
            case _:
                yield event


def _within(turn: AbstractContextManager[None], events: StreamEvents) -> StreamEvents:
    with turn:
        yield from events


def last(events: StreamEvents) -> Json:
    """Read a stream to its end and return the last event. Raises `EmulatorError`."""
    [event] = deque(
        (event for event in events if not isinstance(event, UpstreamAccepted)), maxlen=1
    )
    return event
