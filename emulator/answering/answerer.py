"""One answer in which the model may write Python: turns, until one is of use or the budget is used up.

A turn is read by `ReplyReader`; here is decided what to ask for next. Knows nothing of chunks or Flask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator import metrics
from emulator.answering.answer_request import AnswerRequest
from emulator.answering.cell_draft import CellDraft
from emulator.answering.cell_resume import resume_cell
from emulator.answering.conversation import Conversation
from emulator.answering.deltas import read_deltas
from emulator.answering.first_turn import first_turn
from emulator.answering.grammar.calls import gbnf
from emulator.answering.grammar.rules import UnusableGrammar
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.model_habits import ModelHabits
from emulator.answering.profiles import reasoning_start_of
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.prose import Prose
from emulator.answering.quotations import Quotations
from emulator.answering.recording import record_verdict
from emulator.answering.reply_reader import CodeDraft, ReplyReader
from emulator.answering.reply_splitter import ReasoningStart
from emulator.answering.sandbox_errors import translate_sandbox_errors
from emulator.answering.stop_filter import StopFilter
from emulator.answering.turn_state import TurnState
from emulator.answering.usage_counter import UsageCounter
from emulator.answering.verdicts import (
    CellResult,
    FinalReply,
    UnusableReply,
    Verdict,
    answer_finish_reason,
    is_truncated,
)
from emulator.errors import ModelFailed, UpstreamFailed
from emulator.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    FinishReason,
    ToolCall,
    UpstreamAccepted,
    Usage,
)
from emulator.programs.driver import Driver
from emulator.programs.ended import EndedProgram
from emulator.programs.origin import Origin
from emulator.programs.program import Call
from emulator.programs.repeats import repeated_calls
from emulator.programs.resume import ContinuedProgram, resume
from emulator.programs.saved import save
from emulator.settings import Settings
from emulator.storage.key_value import KeyValueStore
from emulator.upstream.interface import AnswerUpstream
from sandbox.engine import Engine, fresh_seed


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """Makes the events of one choice of one request."""

    upstream: AnswerUpstream
    engines: Sequence[Engine]
    store: KeyValueStore | None
    habits: ModelHabits
    request: AnswerRequest
    open_session: Callable[[], InterpreterSession] | None = None
    """Gives the code interpreter, if the model may use one."""

    @property
    def settings(self) -> Settings:
        return self.request.settings

    def events(self) -> Iterator[AnswerEvent]:
        """Raises `EmulatorError`, before the first event or after any."""
        session = self.open_session() if self.open_session else None
        try:
            yield from self._events(session)
        finally:
            if session is not None:
                session.close()

    def _events(self, session: InterpreterSession | None) -> Iterator[AnswerEvent]:
        driver = Driver(
            self.engines,
            self.request.toolset,
            max_calls=self.settings.program_calls,
            order=self.request.order,
            one_at_a_time=self.request.call_policy.one_at_a_time,
        )
        went_on: ContinuedProgram | EndedProgram | FinalReply | None = None
        if session is not None:
            went_on = yield from resume_cell(session, self.request.chat.messages)
        went_on = went_on or self._resumed(driver)
        if isinstance(went_on, FinalReply):
            metrics.TURNS_SAVED.inc()
            yield Finish("tool_calls", Usage())
        elif isinstance(went_on, ContinuedProgram):
            metrics.TURNS_SAVED.inc()
            yield UpstreamAccepted(turns_saved=1)
            yield from went_on.calls
            yield Finish("tool_calls", Usage())
        else:
            request = self.request
            if session is not None:
                with_files = session.with_files(request.chat.messages)
                chat = request.chat.model_copy(update={"messages": with_files})
                request = replace(request, chat=chat)
            chat = request.chat
            conversation = Conversation(self.store, self.request.client, chat.messages, chat.model)
            passages = conversation.passages(self.request.toolset, went_on)
            messages, fields = first_turn(
                request,
                habit=conversation.habit(self.habits.usual_dialect(self._model_key)),
                engines=[engine.name for engine in self.engines],
                passages=passages,
                session=session,
            )
            state = TurnState(messages, fields, self.request.call_policy, session)
            state.quotations = Quotations(chat.messages, self.request.toolset)
            yield from self._noting(conversation, state, self._asked(driver, state))

    def _noting(
        self, conversation: Conversation, state: TurnState, events: Iterator[AnswerEvent]
    ) -> Iterator[AnswerEvent]:
        """The same events; keeps what was asked for again on the way to the answer."""
        words: list[str] = []
        calls: list[ToolCall] = []
        for event in events:
            match event:
                case ContentDelta(text):
                    words.append(text)
                case ToolCall():
                    calls.append(event)
                case Finish() if self.open_session is None:
                    conversation.save_repair_messages(state.repair_messages, "".join(words), calls)
            yield event

    @property
    def _model_key(self) -> tuple[str, str, str]:
        """Whose habits these are: each upstream's, model's and client's are their own."""
        return self.settings.base_url, self.request.route.model, self.request.client

    def _resumed(self, driver: Driver) -> ContinuedProgram | EndedProgram | None:
        """What became of a program whose results end the history."""
        if self.store is None:
            return None
        went_on = resume(self.store, driver, self.request.chat.messages, self.request.client)
        if isinstance(went_on, ContinuedProgram) and went_on.saved is not None:
            save(self.store, went_on.saved, went_on.calls)
        return went_on

    def _asked(self, driver: Driver, state: TurnState) -> Iterator[AnswerEvent]:
        """Ask the model; a call that it was only asked about leaves when nothing better comes of that."""
        meter = UsageCounter()
        try:
            yield from self._attempts(driver, state, meter)
        except (ModelFailed, UpstreamFailed):
            if state.repeated_call is None:
                raise
            yield from state.repeated_call.release_calls()
            self._keep(state.repeated_call)
            yield Finish("tool_calls", meter.usage(state.messages))

    def _attempts(
        self, driver: Driver, state: TurnState, meter: UsageCounter
    ) -> Iterator[AnswerEvent]:
        """Ask the model, and ask again while its reply is of no use or has run code."""
        seed = fresh_seed()
        verdict: Verdict = FinalReply()
        while True:
            reply = self._reply(driver, seed, state)
            try:
                finish_reason = yield from self._read(reply, state, meter)
            except UpstreamFailed as error:
                # The repair request did not fit the model's context: the first fault is the one to tell.
                if not (
                    state.attempt and error.status == 400 and isinstance(verdict, UnusableReply)
                ):
                    raise
                stands = state.promised or verdict.kind == "quoted"
                if not stands and verdict.kind != "cut":
                    raise state.model_failed(verdict) from error
                yield Finish("stop" if stands else "length", meter.usage(state.messages))
                return
            state.sent += reply.prose.sent
            verdict = reply.verdict
            record_verdict(verdict, finish_reason)
            reason = yield from self._judged(reply, finish_reason, state, meter)
            if reason is not None:
                stop_sequence = reply.prose.stop_sequence if reason == "stop" else None
                yield Finish(reason, meter.usage(state.messages), stop_sequence)
                return

    def _judged(
        self, reply: ReplyReader, finish_reason: str | None, state: TurnState, meter: UsageCounter
    ) -> Generator[AnswerEvent, None, FinishReason | None]:
        """What the answer finishes with, or None if the model is asked again."""
        verdict = reply.verdict
        if reply.draft.calls:
            self._keep(reply.draft)
            return "length" if reply.draft.truncated_block else "tool_calls"
        if isinstance(verdict, CellResult):
            state.add_cell_result(reply, verdict)
            return None
        if isinstance(verdict, FinalReply):
            return answer_finish_reason(finish_reason)
        if verdict.kind == "cut":
            filtered = finish_reason == "content_filter"
            if reply.draft.has_open_call:  # what has been told cannot be written anew
                return answer_finish_reason(finish_reason or "length")
            if filtered or not state.can_continue(reply, meter, self.settings):
                yield from reply.rest()
                return answer_finish_reason(finish_reason or "length")
        elif verdict.kind == "quoted":
            if self.request.answer_format is None:
                yield from reply.rest()
            if not state.confirm_quotation(reply, verdict, self.settings):
                return answer_finish_reason(finish_reason)
        elif finish_reason and is_truncated(finish_reason):
            # What the upstream cut off is not the model's fault: asking again would not help.
            return answer_finish_reason(finish_reason)
        return self._refused(reply, verdict, state)

    def _refused(
        self, reply: ReplyReader, verdict: UnusableReply, state: TurnState
    ) -> FinishReason | None:
        """Ask again, where the budget allows; else the reason to finish with. Raises `ModelFailed`."""
        # A promise is asked for once; whoever promises again may just talk like that. It is prose, and
        # stays an answer when nothing better comes of asking.
        final = state.attempt >= self.settings.repair_attempts
        again = verdict.kind == "promised" and state.attempt
        if again or (final and (state.promised or verdict.kind == "promised")):
            return "stop"
        metrics.REPAIRS.labels(verdict.kind).inc()
        if final:
            raise state.model_failed(verdict)
        state.add_repair(reply, verdict)
        state.fields |= self._retry_fields(verdict)
        return None

    def _repeated_calls(self, state: TurnState) -> list[Call]:
        """Calls to ask about, once: they are valid, so that whoever means them gets them."""
        if state.attempt or not self.settings.repair_attempts:
            return []
        return repeated_calls(self.request.chat.messages)

    def _reply(self, driver: Driver, seed: int, state: TurnState) -> ReplyReader:
        read = ProgramDraft(
            driver,
            required=state.call_policy.required and state.session is None,
            by_statement=self.settings.stream_calls != "block",
            seed=seed,
            repeated_calls=self._repeated_calls(state),
            quotations=state.quotations,
            stream_arguments=self.settings.stream_calls == "delta"
            and bool(self.request.chat.stream),
        )
        order = "strict" if driver.one_at_a_time else driver.order
        draft = (
            CellDraft(read, state.session, self.request.toolset, state.quotations, order)
            if state.session
            else read
        )
        hold = (
            bool(state.attempt)
            or state.call_policy.required
            or self.request.answer_format is not None
        )
        lead = "\n\n" if state.sent else ""
        return ReplyReader(
            draft,
            Prose(StopFilter(self.request.chat.stop), hold=hold, lead=lead),
            state.call_policy,
            answer_format=self.request.answer_format,
            recover_reasoning=self.settings.recover_reasoning,
            reasoning_start=self._reasoning_start(state),
            quotation_questioned=state.quotation_questioned,
            unfinished_block=state.unfinished_block,
        )

    def _reasoning_start(self, state: TurnState) -> ReasoningStart:
        """How the next reply begins, as far as is known."""
        seen = self.habits.reasoning_start(self._reasoning_key)
        if seen is not ReasoningStart.UNKNOWN:
            return seen
        by_name = reasoning_start_of(self.request.profile, self.request.route.model)
        # What the model goes on with may be a draft that was cut off.
        perhaps = state.unfinished_block and by_name is ReasoningStart.UNKNOWN
        return ReasoningStart.PERHAPS_INSIDE if perhaps else by_name

    @property
    def _reasoning_key(self) -> tuple[str, ...]:
        return (*self._model_key, self.request.chat.reasoning_switches)

    def _read(
        self,
        reply: ReplyReader,
        state: TurnState,
        meter: UsageCounter,
    ) -> Generator[AnswerEvent, None, str | None]:
        """Read one reply; returns the upstream's finish_reason, or None when we closed it."""
        finish_reason: str | None = None
        size = 0
        container_id = state.session.container.id if state.session else ""
        for engine in self.engines:
            engine.get_ready()  # while the model thinks
        with translate_sandbox_errors():
            with self.upstream.open(state.messages, state.fields) as stream:
                meter.begin()
                metrics.MODEL_TURNS.inc()
                reply.record()
                yield UpstreamAccepted(container_id=container_id, headers=stream.headers)
                for delta in read_deltas(stream, self.request.profile, meter):
                    size += len(delta.content) + len(delta.reasoning)
                    yield from reply.feed(delta.content, delta.reasoning)
                    finish_reason = delta.finish_reason or finish_reason
                    if reply.done:
                        break
                    if size > self.settings.max_reply_chars:
                        finish_reason = "length"
                        break
            yield from reply.close(cut_off=not reply.done and is_truncated(finish_reason))
        if reply.reasoning_start is not None:
            self.habits.record_start(self._reasoning_key, reply.reasoning_start)
        return finish_reason

    def _keep(self, draft: CodeDraft) -> None:
        """Remember how the model calls, and the program for its results."""
        self.habits.record_dialects(self._model_key, draft.dialects)
        if self.store is not None and (saved := draft.saved_program()) is not None:
            origin = Origin.of(self.request.client, self.request.chat.messages)
            save(self.store, replace(saved, origin=origin), saved.pending())

    def _retry_fields(self, verdict: UnusableReply) -> dict[str, Any]:
        """A grammar of valid calls, where the operator says that the upstream takes one."""
        field = self.settings.retry_grammar
        toolset, choice = self.request.toolset, self.request.call_policy
        if field == "off" or not toolset.tools or verdict.kind not in ("invalid", "required"):
            return {}
        parallel = not choice.one_at_a_time
        try:
            return {field: gbnf(toolset.tools, required=True, only=choice.name, parallel=parallel)}
        except UnusableGrammar:
            return {}
