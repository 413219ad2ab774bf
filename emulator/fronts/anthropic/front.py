"""Answer a Messages request: request -> chat request -> answer -> stream. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emulator.answering.pipeline import Pipeline
from emulator.answering.relay import expand_relayed_chunks
from emulator.answering.summary import question
from emulator.conversation.answer_request import Omitted
from emulator.core.errors import EmulatorError
from emulator.core.events import AnswerEvent, Finish, UpstreamAccepted
from emulator.core.protocol import ChatCompletionRequest
from emulator.fronts.anthropic.mcp_servers import LISTING_BETA
from emulator.fronts.anthropic.request import (
    Compaction,
    CountRequest,
    Json,
    MessagesRequest,
    at_client_place,
    chat_request,
)
from emulator.fronts.anthropic.threads import Threads
from emulator.fronts.anthropic.tools import code_caller
from emulator.fronts.anthropic.writer import MessageWriter


@dataclass(frozen=True)
class MessageStream:
    """The stream of one message."""

    events: Iterator[Json | UpstreamAccepted]
    """The stream's events, `UpstreamAccepted` first. The iterator raises `EmulatorError`."""
    omitted: Omitted
    """What of the request has no effect."""


def answer(
    pipeline: Pipeline,
    threads: Threads,
    request: MessagesRequest,
    client: str = "",
    betas: str = "",
) -> MessageStream:
    """Read the request and start its answer; ``betas`` is the header ``anthropic-beta``.

    Raises `BadRequest`, `NotFound` or `StoreUnavailable` before the first event.
    """
    joined = threads.joined(client, request)
    stored = len(joined.messages) - len(request.messages)
    offered = joined.offered_tools(stored)
    try:
        chat = chat_request(joined, stored, betas)
        if request.compaction is not None:
            chat = _summarizing(chat, request.compaction)
        answer_request = replace(
            pipeline.read(chat, client), finds_stop_string=True, shows_hosted=True
        )
    except EmulatorError as error:
        raise at_client_place(error, joined, offered) from error
    writer = MessageWriter(
        request.model,
        thinks=request.thinks,
        shows_lists=LISTING_BETA in betas,
        code_caller=code_caller(offered.tools),
    )
    answered = expand_relayed_chunks(answer_request, pipeline.answer(answer_request))
    if request.max_tokens == 0:
        answered = _without_output(answered)
    if request.compaction is None:
        events = writer.write(answered)
    else:
        changes = [change for _, change in joined.tool_changes()]
        events = writer.write_summary(answered, changes)
    if request.thread is not None:
        events = threads.saved(client, joined, events)
    return MessageStream(events, answer_request.omitted)


def _without_output(events: Iterator[AnswerEvent]) -> Iterator[AnswerEvent]:
    """An answer of no tokens: the upstream was asked for one, because many refuse to be asked for none."""
    for event in events:
        if isinstance(event, Finish):
            yield replace(event, reason="length", usage=replace(event.usage, completion_tokens=0))
        elif isinstance(event, UpstreamAccepted):
            yield event


def _summarizing(chat: ChatCompletionRequest, compaction: Compaction) -> ChatCompletionRequest:
    """The request for a summary of the conversation in ``chat``, without its tools."""
    messages = [*chat.messages, question(compaction.instructions or "")]
    plain = {"tools": None, "tool_choice": "none", "response_format": None}
    return chat.model_copy(update={**plain, "messages": messages})


def count_tokens(
    pipeline: Pipeline, request: CountRequest, client: str = "", betas: str = ""
) -> int:
    """Estimate the tokens of the prompt, including the tools, without the model's tokenizer.

    Raises `BadRequest` or `NotFound`.
    """
    offered = request.offered_tools()
    try:
        return pipeline.prompt_tokens(pipeline.read(chat_request(request, betas=betas), client))
    except EmulatorError as error:
        raise at_client_place(error, request, offered) from error
