"""Answer a Messages request: request -> chat request -> answer -> stream. Knows nothing of Flask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emulator.answering.pipeline import Pipeline, without_output
from emulator.answering.relay import expand_relayed_chunks
from emulator.answering.summary import answer_in_context, for_summary, summarized
from emulator.conversation.answer_request import AnswerRequest, Omitted
from emulator.core.errors import EmulatorError
from emulator.core.events import AnswerEvent, UpstreamAccepted
from emulator.core.protocol import ChatCompletionRequest
from emulator.fronts.anthropic.context import report
from emulator.fronts.anthropic.mcp_servers import LISTING_BETA
from emulator.fronts.anthropic.request import (
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

    def read(chat: ChatCompletionRequest) -> AnswerRequest:
        return replace(pipeline.read(chat, client), finds_stop_string=True, shows_hosted=True)

    def events_of(answer_request: AnswerRequest) -> Iterator[AnswerEvent]:
        return expand_relayed_chunks(answer_request, pipeline.answer(answer_request))

    joined = threads.joined(client, request)
    stored = len(joined.messages) - len(request.messages)
    offered = joined.offered_tools(stored)
    try:
        chat = chat_request(joined, stored, betas)
        if request.compaction is not None:
            answer_request = read(for_summary(chat, request.compaction.instructions or ""))
            answered = summarized(events_of(answer_request))
        else:
            answer_request, answered = answer_in_context(events_of, read, chat)
    except EmulatorError as error:
        raise at_client_place(error, joined, offered) from error
    manages = request.context_management is not None
    writer = MessageWriter(
        request.model,
        thinks=request.thinks,
        shows_lists=LISTING_BETA in betas,
        code_caller=code_caller(offered.tools),
        # The client keeps what precedes a summary that it did not ask for.
        tool_changes=[change for _, change in joined.tool_changes()]
        if request.compaction
        else None,
        context_management=report(answer_request.applied_edits) if manages else None,
    )
    if request.max_tokens == 0:
        answered = without_output(answered, "length")
    events = writer.write(answered)
    if request.thread is not None:
        events = threads.saved(client, joined, events)
    return MessageStream(events, answer_request.omitted)


def count_tokens(
    pipeline: Pipeline, request: CountRequest, client: str = "", betas: str = ""
) -> tuple[Json, Omitted]:
    """Estimate the tokens of the prompt, including the tools, without the model's tokenizer.

    Raises `BadRequest` or `NotFound`.
    """
    offered = request.offered_tools()
    try:
        chat = chat_request(request, betas=betas)
        answer_request = pipeline.read(chat, client)
        counted: Json = {"input_tokens": pipeline.prompt_tokens(answer_request)}
        if request.context_management is not None:
            whole = pipeline.read(chat.model_copy(update={"context_rules": None}), client)
            original = {"original_input_tokens": pipeline.prompt_tokens(whole)}
            counted["context_management"] = original
        return counted, answer_request.omitted
    except EmulatorError as error:
        raise at_client_place(error, request, offered) from error
