"""An answer by an upstream that calls tools itself; an unusable reply is asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from emulator.answering.native.conversation import valid_conversation
from emulator.answering.native.turn import NativeTurn, ShownFences, VerbatimProse
from emulator.answering.turn_state import model_failed
from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.call_policy import SUPPORTED_TYPES, wire_names
from emulator.core import metrics
from emulator.core.events import RelayedChunk, UpstreamAccepted
from emulator.programs.driver import Driver
from emulator.programs.sandbox_errors import translate_sandbox_errors
from emulator.reading import diagnostics
from emulator.reading.reply_splitter import ReasoningStart
from emulator.rendering.transcript import ModelMessage, render, with_one_system, without_developer
from emulator.reply.call_assembly import CallChecker
from emulator.reply.draft import Draft
from emulator.reply.judge import Judge
from emulator.reply.program_runs import ProgramRuns
from emulator.reply.quotations import Quotations
from emulator.reply.recording import note_repair, record_verdict
from emulator.reply.reply_program import ReplyProgram
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.sent_names import SentNames
from emulator.reply.verdicts import UnusableReply
from emulator.tools.tool_items import for_other_servers
from emulator.upstream.interface import MAX_REPLY_CHARS, Chunk
from emulator.upstream.metering import estimate_tokens
from emulator.upstream.upstreams import AnswerUpstream
from emulator.upstream.usage_counter import UsageCounter
from sandbox.engine import fresh_seed
from sandbox.programs.server import ProgramServer


def may_be_native(request: AnswerRequest) -> bool:
    """Return True for requests with function tools only and one choice, whose client sees no programs."""
    kinds = {tool.kind for tool in request.toolset.tools}
    plain = kinds == {"function"} and request.interpreter is None and not request.chat.is_legacy
    return plain and (request.chat.n or 1) == 1 and not request.chat.shows_programs


def native_tokens(request: AnswerRequest) -> int:
    """Estimate the tokens of the prompt."""
    messages, fields = native_request(request, _sent_names(request))
    return estimate_tokens(messages, fields.get("tools") or ())


def _sent_names(request: AnswerRequest) -> SentNames:
    return SentNames(name for tool in request.chat.tools or () for name in wire_names(tool))


def native_request(
    request: AnswerRequest, names: SentNames
) -> tuple[list[ModelMessage], dict[str, Any]]:
    """The client's messages, as a `valid_conversation`, and its fields, without those that the upstream
    rejects and with tools as other servers know them."""
    chat, profile = request.chat, request.profile
    sent = chat.model_dump(
        exclude={"messages"}, exclude_unset=True, exclude_none=True, by_alias=True
    )
    fields = request.upstream_fields.sent(sent, {"stream", "max_tool_calls"})
    if chat.tools is not None:  # hosted tools cannot run here
        supported = [t for t in chat.tools if t.get("type", "function") in SUPPORTED_TYPES]
        tools = [*map(for_other_servers, supported)]
        if request.deferred:
            tools = [*request.deferred.native_tools(tools, chat.messages)]
        fields["tools"] = [*map(names.in_tool, tools)]
    if "tool_choice" in fields:
        fields["tool_choice"] = names.in_choice(fields["tool_choice"])
    valid = (message.for_model for message in valid_conversation(chat.messages))
    messages = [
        names.in_message(message.model_dump(exclude_unset=True))
        | ({"reasoning_content": message.reasoning} if message.reasoning else {})
        for message in (one.plain if profile.plain else one for one in valid)
    ]
    if profile.plain:
        messages = without_developer(messages)
    if not request.keeps_later_system:
        messages = with_one_system(messages)
    return messages, profile.rename_fields(fields) | {"stream_options": {"include_usage": True}}


def native_answer(
    request: AnswerRequest, upstream: AnswerUpstream, programs: ProgramServer
) -> Iterator[UpstreamAccepted | RelayedChunk]:
    """Yield the upstream's chunks and one with the usage.

    Raises `PromptTooLong`, `UpstreamFailed`, `ModelFailed`.
    """
    return _NativeAnswer(request, upstream, programs).events()


class _NativeAnswer:
    """The state of one answer across its turns."""

    def __init__(
        self, request: AnswerRequest, upstream: AnswerUpstream, programs: ProgramServer
    ) -> None:
        self._request = request
        self._upstream = upstream
        names = _sent_names(request)
        self._messages, self._fields = native_request(request, names)
        self._driver = Driver(
            programs,
            request.toolset,
            order="dataflow",
            one_at_a_time=request.call_policy.one_at_a_time,
        )
        self._checker = CallChecker(request.toolset, names)
        self._tools = self._fields.get("tools") or ()
        self._usage_counter = UsageCounter(self._tools)
        self._usage: dict[str, Any] | None = None
        self._id: dict[str, Any] = {}
        self._attempt = 0
        self._has_words = False
        self._has_role = False

    def events(self) -> Iterator[UpstreamAccepted | RelayedChunk]:
        settings = self._request.settings
        self._request.check_length(self._messages, self._tools)
        while True:
            reply = _reply(self._request, self._driver, self._attempt, has_words=self._has_words)
            turn = NativeTurn(reply, self._checker, self._request.call_policy)
            yield from self._read(turn, reply)
            too_long = turn.size > MAX_REPLY_CHARS
            verdict = turn.verdict
            record_verdict(verdict, turn.finish_reason)
            if too_long or not isinstance(verdict, UnusableReply) or self._is_acceptable(verdict):
                break
            if self._attempt >= settings.repair_attempts:
                raise model_failed(verdict, _diagnostics(verdict), self._attempt, turn.text)
            metrics.NATIVE_REPAIRS.labels(f"asked_{verdict.kind}").inc()
            note_repair(verdict)
            self._attempt += 1
            self._messages = [*self._messages, *_repair_messages(turn, verdict)]
        yield self._relay(turn.end(length=too_long))
        if self._attempt:
            self._usage = self._usage_counter.usage(self._messages).json()
        if self._usage:
            yield self._relay(RelayedChunk({"choices": [], "usage": self._usage}))

    def _read(
        self, turn: NativeTurn, reply: ReplyReader
    ) -> Iterator[UpstreamAccepted | RelayedChunk]:
        """Read one reply, without its last chunk."""
        with (
            translate_sandbox_errors(),
            self._upstream.open(self._messages, self._fields) as stream,
        ):
            self._usage_counter.start_turn(self._messages)
            metrics.MODEL_TURNS.inc()
            reply.record()
            yield UpstreamAccepted(
                headers=stream.headers, messages=self._messages, tools=self._tools
            )
            for chunk in stream:
                self._usage_counter.count(chunk)
                self._usage = chunk.pop("usage", None) or self._usage
                # After the first turn the client has received the role.
                if chunk.get("choices") and (_is_output(chunk) or not self._attempt):
                    yield from map(self._relay, turn.feed(chunk))
                if turn.done or turn.size > MAX_REPLY_CHARS:
                    break
            yield from map(self._relay, turn.close())

    def _relay(self, event: RelayedChunk) -> RelayedChunk:
        """All chunks of one answer have the same id, and the model's name from the request. The first has the
        role, whichever reply it is from, and no other has."""
        chunk = event.chunk
        self._id = self._id or {n: chunk[n] for n in ("id", "created") if n in chunk}
        kind = {"object": "chat.completion.chunk", "model": self._request.chat.model}
        for choice in chunk["choices"]:
            delta = choice["delta"]
            self._has_words |= bool(delta.get("content"))
            if ("role" in delta) == self._has_role:
                role = {} if self._has_role else {"role": "assistant"}
                others = {name: value for name, value in delta.items() if name != "role"}
                chunk = {**chunk, "choices": [{**choice, "delta": {**role, **others}}]}
            self._has_role = True
        return replace(event, chunk={**chunk, **self._id, **kind})

    def _is_acceptable(self, verdict: UnusableReply) -> bool:
        """Shown code is an answer."""
        return verdict.kind == "asked" and not self._request.call_policy.required


def _reply(request: AnswerRequest, driver: Driver, attempt: int, *, has_words: bool) -> ReplyReader:
    quotations = Quotations(request.chat.messages, request.toolset, request.hosted)
    draft = Draft(
        ReplyProgram(ProgramRuns(driver, seed=fresh_seed())),
        Judge(request.toolset, request.call_policy.required),
        quotations,
        stream_calls="block",
        forced=request.forced_call,
    )
    prose = VerbatimProse(
        hold=bool(attempt),
        lead="\n\n" if has_words else "",
        up_to_object=request.forced_call is not None,
    )
    splitter = ShownFences(draft.names, ReasoningStart.OUTSIDE)
    return ReplyReader(draft, prose, request.call_policy, splitter)


def _repair_messages(turn: NativeTurn, verdict: UnusableReply) -> list[ModelMessage]:
    facts = {"names": [], **verdict.facts, "diagnostics": _diagnostics(verdict)}
    # As text: chat templates of some servers fail on calls whose arguments are not JSON.
    return [
        {"role": "assistant", "content": turn.text or "..."},
        {"role": "user", "content": render("native.jinja", kind=verdict.kind, **facts)},
    ]


def _diagnostics(verdict: UnusableReply) -> str:
    found = verdict.facts.get("diagnostics") or ""
    return found if isinstance(found, str) else diagnostics.render(found)


def _is_output(chunk: Chunk) -> bool:
    return any(
        choice.get("finish_reason") or any(v for k, v in choice["delta"].items() if k != "role")
        for choice in chunk["choices"]
    )
