"""Answers without emulation: the upstream's own chunks.

Fronts of the same API pass them on; other fronts expand them into events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.call_policy import NO_TOOLS
from emulator.core.errors import UpstreamFailed
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    FinishReason,
    PageCited,
    ReasoningDelta,
    RelayedChunk,
    UpstreamAccepted,
    call_id,
    new_id,
)
from emulator.reading.events import Reasoning, Text
from emulator.reading.reasoning import LeadingReasoning
from emulator.rendering.program_transcript import model_history
from emulator.rendering.transcript import with_one_system, without_developer
from emulator.reply.extras import reply_extras
from emulator.reply.prose import StopFilter
from emulator.reply.verdicts import answer_finish_reason
from emulator.upstream.failures import quote
from emulator.upstream.interface import MAX_REPLY_CHARS
from emulator.upstream.upstreams import AnswerUpstream
from emulator.upstream.usage_counter import UsageCounter

_OUTPUT = ("content", "reasoning_content", "reasoning", "refusal", "audio", "images")


def relay(
    request: AnswerRequest, upstream: AnswerUpstream
) -> Iterator[UpstreamAccepted | RelayedChunk]:
    """Yield `UpstreamAccepted`, the chunks with choices, and one with the usage if the upstream reports it.

    Raises `PromptTooLong`, or `UpstreamFailed`, before the first item or after any.
    """
    chat = request.chat
    profile = request.profile
    passed_on = request.upstream_fields.sent(chat.plain_fields())
    if request.finds_stop_string:
        passed_on.pop("stop", None)
    fields = profile.rename_fields(passed_on)
    fields["stream_options"] = {"include_usage": True}
    usage: dict[str, Any] | None = None
    last: dict[str, Any] = {}
    answered = has_output = False
    unfinished: set[int] = set()
    call: Any = None
    longest = MAX_REPLY_CHARS * (chat.n or 1)
    messages = relayed_messages(request)
    request.check_length(messages)
    with upstream.open(messages, fields) as reply:
        yield UpstreamAccepted(headers=reply.headers, messages=messages)
        for chunk in reply:
            usage = chunk.pop("usage", None) or usage
            chunk["object"], chunk["model"] = "chat.completion.chunk", chat.model
            last = chunk
            if choices := chunk["choices"]:
                for choice in choices:
                    call = _drop_calls(choice) or call
                    _note_end(choice, unfinished)
                    has_output = has_output or any(choice["delta"].get(n) for n in _OUTPUT)
                answered = True
                yield RelayedChunk(chunk, reply.more_arrived)
            if reply.received.characters > longest:
                yield RelayedChunk(
                    {**last, "choices": [_end(n, "length") for n in range(chat.n or 1)]}
                )
                unfinished.clear()
                break
        if not answered:
            raise UpstreamFailed("The upstream's answer has no choices.")
        if call and not has_output:
            raise UpstreamFailed(f"The upstream called a tool, but there is none: {quote(call)}")
        if unfinished:  # [DONE] came without a finish_reason
            yield RelayedChunk({**last, "choices": [_end(n, "stop") for n in sorted(unfinished)]})
        if usage:
            yield RelayedChunk({**last, "choices": [], "usage": usage})


def _drop_calls(choice: dict[str, Any]) -> Any:
    """Remove calls, which the client could not run: the request has no tools. Returns them."""
    if reason := choice.get("finish_reason"):
        choice["finish_reason"] = answer_finish_reason(reason)
    return choice["delta"].pop("tool_calls", None)


def _note_end(choice: dict[str, Any], unfinished: set[int]) -> None:
    change = unfinished.discard if choice.get("finish_reason") else unfinished.add
    change(choice["index"])


def _end(index: int, finish_reason: FinishReason) -> dict[str, Any]:
    return {"index": index, "delta": {}, "finish_reason": finish_reason}


def expand_relayed_chunks(
    request: AnswerRequest, events: Iterable[AnswerEvent], *, unique_ids: bool = False
) -> Iterator[AnswerEvent]:
    """Replace `RelayedChunk` events by what their chunks contain, and add the `Finish`. One choice.

    Reasoning between tags at the start becomes reasoning events: these APIs have a place for it. Some
    upstreams use the same call ids in each reply: with ``unique_ids`` the calls get new ones, from which a
    front can tell that they were made together (`from_same_answer`).
    """
    finish_reason: FinishReason = "stop"
    stop_sequence: str | None = None
    words = _RelayedProse(request.chat.stop if request.finds_stop_string else None)
    tokens: list[dict[str, Any]] = []
    """The log probabilities of words that are not sent yet."""
    prompt: Sequence[Mapping[str, Any]] = ()
    relayed = False
    calls = 0
    answer = new_id("")
    counter = UsageCounter()
    counter.start_turn()
    for event in events:
        if not isinstance(event, RelayedChunk):
            if isinstance(event, UpstreamAccepted):
                prompt, counter.tools = event.messages, event.tools
            yield event
            continue
        relayed = True
        counter.count(event.chunk)
        for choice in event.chunk["choices"]:
            if reasoning := request.profile.reasoning(choice["delta"]):
                yield ReasoningDelta(reasoning)
            tokens += (choice.get("logprobs") or {}).get("content") or ()
            yield from _with_logprobs(words.feed(choice["delta"].get("content") or ""), tokens)
            yield from words.with_extras(choice["delta"])
            if reason := choice.get("finish_reason"):
                finish_reason = "tool_calls" if calls else answer_finish_reason(reason)
            # vLLM and SGLang report which stop string it was.
            if isinstance(matched := choice.get("stop_reason"), str):
                stop_sequence = matched
        if words.stops.stopped:
            finish_reason, stop_sequence = "stop", words.stops.matched
            break  # the upstream is closed with the events
        if event.call is not None:
            yield from words.end_part()
            yield replace(event.call, id=call_id(answer, calls)) if unique_ids else event.call
            calls += 1
    if relayed:
        yield from _with_logprobs(words.end_part(), tokens)
        yield Finish(finish_reason, counter.usage(prompt), stop_sequence)


def _with_logprobs(
    events: Iterable[AnswerEvent], tokens: list[dict[str, Any]]
) -> Iterator[AnswerEvent]:
    """Put the log probabilities on the words. Those of reasoning have no place."""
    for event in events:
        if isinstance(event, ContentDelta):
            yield replace(event, logprobs=(*tokens,))
            tokens.clear()
        else:
            yield event
            if isinstance(event, ReasoningDelta):
                tokens.clear()


class _RelayedProse:
    """The prose of an answer up to a stop string, with leading reasoning separated."""

    def __init__(self, stop: str | Sequence[str] | None) -> None:
        self.stops = StopFilter(stop)
        self._leading: LeadingReasoning | None = LeadingReasoning()

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        if text:
            yield from self._to_events(self._leading.feed(text) if self._leading else [Text(text)])

    def end_part(self) -> Iterator[AnswerEvent]:
        """A call follows, or the answer ends: neither a tag nor a stop string spans it."""
        if self._leading is not None:
            yield from self._to_events(self._leading.close())
            self._leading = None
        if rest := self.stops.close():
            yield ContentDelta(rest)

    def with_extras(self, delta: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """What ``delta`` has besides words, after the words before it."""
        for event in reply_extras(delta):
            if not isinstance(event, PageCited):
                yield from self.end_part()
            yield event

    def _to_events(self, parts: Iterable[Reasoning | Text]) -> Iterator[AnswerEvent]:
        for piece in parts:
            if isinstance(piece, Reasoning):
                yield ReasoningDelta(piece.text)
            elif words := self.stops.feed(piece.text):
                yield ContentDelta(words)


def relayed_messages(request: AnswerRequest) -> list[dict[str, Any]]:
    """What the upstream is sent of the conversation."""
    messages = _relayed_messages(request)
    return messages if request.keeps_later_system else with_one_system(messages)


def _relayed_messages(request: AnswerRequest) -> list[dict[str, Any]]:
    """The client's messages. A history with calls is rendered as text, because the request has no tools.

    For a ``plain`` profile the developer role becomes system, and a list of text parts one text.
    """
    chat = request.chat
    if any(
        m.tool_calls or m.function_call or m.role in ("tool", "function") for m in chat.messages
    ):
        return model_history(chat.messages, NO_TOOLS)
    if not request.profile.plain:
        return [message.model_dump(exclude_unset=True) for message in chat.messages]
    return without_developer([m.plain.model_dump(exclude_unset=True) for m in chat.messages])
