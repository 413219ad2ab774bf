"""One answer in which the model may write Python: turns, until one is of use or the budget is used up.

A turn is read by `reply.Reply`; here is decided what to ask for next. Knows nothing of chunks or Flask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator import metrics
from emulator.answering.asked import Asked
from emulator.answering.bench import Bench
from emulator.answering.cell_draft import CellDraft
from emulator.answering.cell_resume import go_on
from emulator.answering.conversation import Conversation
from emulator.answering.deltas import deltas
from emulator.answering.first_turn import first_turn
from emulator.answering.grammar.calls import gbnf
from emulator.answering.grammar.rules import GrammarUnusable
from emulator.answering.habits import Habits
from emulator.answering.profiles import begins
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.prose import Prose
from emulator.answering.quotations import Quotations
from emulator.answering.recording import record_verdict
from emulator.answering.reply import Drafting, Reply
from emulator.answering.reply_splitter import Begins
from emulator.answering.sandbox_fault import sandbox_at_fault
from emulator.answering.stops import StopFilter
from emulator.answering.turn_state import TurnState
from emulator.answering.usage import Meter
from emulator.answering.verdicts import Answered, Ran, Refused, Verdict, is_cut, told_reason
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
from emulator.programs.ended import ProgramEnded
from emulator.programs.origin import Origin
from emulator.programs.program import Call
from emulator.programs.repeats import barren_calls
from emulator.programs.resume import ProgramContinued, resume
from emulator.programs.saved import save
from emulator.settings import Settings
from emulator.storage.key_value import KeyValueStore
from emulator.upstream.interface import Turns
from sandbox.engine import Engine, fresh_seed


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """Makes the events of one choice of one request."""

    upstream: Turns
    engines: Sequence[Engine]
    store: KeyValueStore | None
    habits: Habits
    asked: Asked
    open_bench: Callable[[], Bench] | None = None
    """Gives the code interpreter, if the model may use one."""

    @property
    def settings(self) -> Settings:
        return self.asked.settings

    def events(self) -> Iterator[AnswerEvent]:
        """Raises `EmulatorError`, before the first event or after any."""
        bench = self.open_bench() if self.open_bench else None
        try:
            yield from self._events(bench)
        finally:
            if bench is not None:
                bench.leave()

    def _events(self, bench: Bench | None) -> Iterator[AnswerEvent]:
        driver = Driver(
            self.engines,
            self.asked.toolset,
            max_calls=self.settings.program_calls,
            order=self.asked.order,
            one_at_a_time=self.asked.choice.one_at_a_time,
        )
        went_on: ProgramContinued | ProgramEnded | Answered | None = None
        if bench is not None:
            went_on = yield from go_on(bench, self.asked.request.messages)
        went_on = went_on or self._resumed(driver)
        if isinstance(went_on, Answered):
            metrics.TURNS_SAVED.inc()
            yield Finish("tool_calls", Usage())
        elif isinstance(went_on, ProgramContinued):
            metrics.TURNS_SAVED.inc()
            yield UpstreamAccepted(turns_saved=1)
            yield from went_on.calls
            yield Finish("tool_calls", Usage())
        else:
            asked = self.asked
            if bench is not None:
                with_files = bench.taken_in(asked.request.messages)
                request = asked.request.model_copy(update={"messages": with_files})
                asked = replace(asked, request=request)
            request = asked.request
            conversation = Conversation(
                self.store, self.asked.client, request.messages, request.model
            )
            passages = conversation.passages(self.asked.toolset, went_on)
            messages, fields = first_turn(
                asked,
                habit=conversation.habit(self.habits.of(self._habitat)),
                engines=[engine.name for engine in self.engines],
                passages=passages,
                bench=bench,
            )
            state = TurnState(messages, fields, self.asked.choice, bench)
            state.quotations = Quotations(request.messages, self.asked.toolset)
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
                case Finish() if self.open_bench is None:
                    conversation.keep_asked_again(state.asked_again, "".join(words), calls)
            yield event

    @property
    def _habitat(self) -> tuple[str, str, str]:
        """Whose habits these are: each upstream's, model's and client's are their own."""
        return self.settings.base_url, self.asked.route.model, self.asked.client

    def _resumed(self, driver: Driver) -> ProgramContinued | ProgramEnded | None:
        """What became of a program whose results end the history."""
        if self.store is None:
            return None
        went_on = resume(self.store, driver, self.asked.request.messages, self.asked.client)
        if isinstance(went_on, ProgramContinued) and went_on.saved is not None:
            save(self.store, went_on.saved, went_on.calls)
        return went_on

    def _asked(self, driver: Driver, state: TurnState) -> Iterator[AnswerEvent]:
        """Ask the model; a call that it was only asked about leaves when nothing better comes of that."""
        meter = Meter()
        try:
            yield from self._attempts(driver, state, meter)
        except (ModelFailed, UpstreamFailed):
            if state.suspect is None:
                raise
            yield from state.suspect.released()
            self._keep(state.suspect)
            yield Finish("tool_calls", meter.usage(state.messages))

    def _attempts(self, driver: Driver, state: TurnState, meter: Meter) -> Iterator[AnswerEvent]:
        """Ask the model, and ask again while its reply is of no use or has run code."""
        seed = fresh_seed()
        verdict: Verdict = Answered()
        while True:
            reply = self._reply(driver, seed, state)
            try:
                finish_reason = yield from self._read(reply, state, meter)
            except UpstreamFailed as error:
                # The repair request did not fit the model's context: the first fault is the one to tell.
                if not (state.attempt and error.status == 400 and isinstance(verdict, Refused)):
                    raise
                stands = state.promised or verdict.kind == "quoted"
                if not stands and verdict.kind != "cut":
                    raise state.gave_up(verdict) from error
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
        self, reply: Reply, finish_reason: str | None, state: TurnState, meter: Meter
    ) -> Generator[AnswerEvent, None, FinishReason | None]:
        """What the answer finishes with, or None if the model is asked again."""
        verdict = reply.verdict
        if reply.draft.calls:
            self._keep(reply.draft)
            return "length" if reply.draft.cut else "tool_calls"
        if isinstance(verdict, Ran):
            state.ran(reply, verdict)
            return None
        if isinstance(verdict, Answered):
            return told_reason(finish_reason)
        if verdict.kind == "cut":
            filtered = finish_reason == "content_filter"
            if reply.draft.begun:  # what has been told cannot be written anew
                return told_reason(finish_reason or "length")
            if filtered or not state.goes_on(reply, meter, self.settings):
                yield from reply.rest()
                return told_reason(finish_reason or "length")
        elif verdict.kind == "quoted":
            if self.asked.answer_format is None:
                yield from reply.rest()
            if not state.asks_about(reply, verdict, self.settings):
                return told_reason(finish_reason)
        elif finish_reason and is_cut(finish_reason):
            # What the upstream cut off is not the model's fault: asking again would not help.
            return told_reason(finish_reason)
        return self._refused(reply, verdict, state)

    def _refused(self, reply: Reply, verdict: Refused, state: TurnState) -> FinishReason | None:
        """Ask again, where the budget allows; else the reason to finish with. Raises `ModelFailed`."""
        # A promise is asked for once; whoever promises again may just talk like that. It is prose, and
        # stays an answer when nothing better comes of asking.
        final = state.attempt >= self.settings.repair_attempts
        again = verdict.kind == "promised" and state.attempt
        if again or (final and (state.promised or verdict.kind == "promised")):
            return "stop"
        metrics.REPAIRS.labels(verdict.kind).inc()
        if final:
            raise state.gave_up(verdict)
        state.refused(reply, verdict)
        state.fields |= self._retry_fields(verdict)
        return None

    def _barren_calls(self, state: TurnState) -> list[Call]:
        """Calls to ask about, once: they are valid, so that whoever means them gets them."""
        if state.attempt or not self.settings.repair_attempts:
            return []
        return barren_calls(self.asked.request.messages)

    def _reply(self, driver: Driver, seed: int, state: TurnState) -> Reply:
        read = ProgramDraft(
            driver,
            required=state.choice.required and state.bench is None,
            by_statement=self.settings.stream_calls != "block",
            seed=seed,
            barren=self._barren_calls(state),
            quotations=state.quotations,
            early=self.settings.stream_calls == "delta" and bool(self.asked.request.stream),
        )
        order = "strict" if driver.one_at_a_time else driver.order
        draft = (
            CellDraft(read, state.bench, self.asked.toolset, state.quotations, order)
            if state.bench
            else read
        )
        hold = bool(state.attempt) or state.choice.required or self.asked.answer_format is not None
        lead = "\n\n" if state.sent else ""
        return Reply(
            draft,
            Prose(StopFilter(self.asked.request.stop), hold=hold, lead=lead),
            state.choice,
            answer_format=self.asked.answer_format,
            recover_reasoning=self.settings.recover_reasoning,
            begins=self._begins(state),
            asked_about=bool(state.asked_about),
            cut=state.cut,
        )

    def _begins(self, state: TurnState) -> Begins:
        """How the next reply begins, as far as is known."""
        seen = self.habits.beginning(self._whose_replies)
        if seen is not Begins.UNKNOWN:
            return seen
        by_name = begins(self.asked.profile, self.asked.route.model)
        # What the model goes on with may be a draft that was cut off.
        perhaps = state.cut and by_name is Begins.UNKNOWN
        return Begins.PERHAPS_INSIDE if perhaps else by_name

    @property
    def _whose_replies(self) -> tuple[str, ...]:
        return (*self._habitat, self.asked.request.reasoning_switches)

    def _read(
        self,
        reply: Reply,
        state: TurnState,
        meter: Meter,
    ) -> Generator[AnswerEvent, None, str | None]:
        """Read one reply; returns the upstream's finish_reason, or None when we closed it."""
        finish_reason: str | None = None
        size = 0
        container_id = state.bench.container.id if state.bench else ""
        for engine in self.engines:
            engine.get_ready()  # while the model thinks
        with sandbox_at_fault():
            with self.upstream.open(state.messages, state.fields) as stream:
                meter.begin()
                metrics.MODEL_TURNS.inc()
                reply.record()
                yield UpstreamAccepted(container_id=container_id, headers=stream.headers)
                for delta in deltas(stream, self.asked.profile, meter):
                    size += len(delta.content) + len(delta.reasoning)
                    yield from reply.feed(delta.content, delta.reasoning)
                    finish_reason = delta.finish_reason or finish_reason
                    if reply.done:
                        break
                    if size > self.settings.max_reply_chars:
                        finish_reason = "length"
                        break
            yield from reply.close(cut_off=not reply.done and is_cut(finish_reason))
        if reply.begins is not None:
            self.habits.told_beginning(self._whose_replies, reply.begins)
        return finish_reason

    def _keep(self, draft: Drafting) -> None:
        """Remember how the model calls, and the program for its results."""
        self.habits.remember(self._habitat, draft.dialects)
        if self.store is not None and (saved := draft.saved()) is not None:
            origin = Origin.of(self.asked.client, self.asked.request.messages)
            save(self.store, replace(saved, origin=origin), saved.pending())

    def _retry_fields(self, verdict: Refused) -> dict[str, Any]:
        """A grammar of valid calls, where the operator says that the upstream takes one."""
        field = self.settings.retry_grammar
        toolset, choice = self.asked.toolset, self.asked.choice
        if field == "off" or not toolset.tools or verdict.kind not in ("invalid", "required"):
            return {}
        parallel = not choice.one_at_a_time
        try:
            return {field: gbnf(toolset.tools, required=True, only=choice.name, parallel=parallel)}
        except GrammarUnusable:
            return {}
