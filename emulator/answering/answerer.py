"""Make one emulated answer: the turns with a model that writes Python, within one budget of repairs.

    resume -> done, if the history ends with results of a program or cell that calls again
           -> prompt -> read a reply -> verdict -> done
                  ^                        |
                  +--- repair, cell output +

`ReplyReader` reads a turn and `TurnState` explains the budget; this module decides what to ask next. Three
rules:

* A call that was sent is never taken back: as soon as a turn has calls, they are the answer.
* The upstream's truncation is not the model's fault: only a block that was cut off is asked for again.
* When a repair fails (an upstream error, an exhausted budget, the same reply again), a repeated call is sent,
  else the text of the first reply is the answer. Only what the request requires is an error if it is missing.

Knows nothing of chunks or Flask.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emulator import traces
from emulator.answering.cell_resume import resume_cell
from emulator.answering.first_turn import first_turn
from emulator.answering.model_habits import ModelHabits, ModelKey
from emulator.answering.new_reply import new_reply
from emulator.answering.turn_state import TurnState
from emulator.answering.ways.json_way import JSON
from emulator.answering.ways.schema import constraint, reply_schema
from emulator.answering.ways.way import PromptInputs
from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.profiles import reasoning_start_of
from emulator.core import metrics
from emulator.core.errors import ModelFailed, UpstreamFailed
from emulator.core.events import (
    AnswerEvent,
    Finish,
    FinishReason,
    ModelViewReport,
    UpstreamAccepted,
    Usage,
)
from emulator.history import ModelView, dialect_of, model_view_of, uses_label
from emulator.interpreter.interpreter_session import InterpreterSession
from emulator.programs.basis import Basis, question_digest
from emulator.programs.call_history import is_superseded, last_result
from emulator.programs.driver import Driver
from emulator.programs.ended import (
    EndedProgram,
    finished_program,
    is_shown,
    locate_program,
    results_digest,
    shows_only_calls,
    with_finished_program,
)
from emulator.programs.fingerprints import Fingerprints
from emulator.programs.open_run import OpenRun
from emulator.programs.resume import ContinuedProgram, resume
from emulator.programs.sandbox_errors import translate_sandbox_errors
from emulator.programs.saved import SavedProgram
from emulator.reading.reply_splitter import ReasoningStart
from emulator.reply.deltas import read_deltas
from emulator.reply.draft import Draft
from emulator.reply.mentions import note_mention
from emulator.reply.quotations import Quotations
from emulator.reply.recording import FIT, SAID_RUN, note_question, note_repair, record_verdict
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.verdicts import (
    CellResult,
    FinalReply,
    UnusableReply,
    Verdict,
    answer_finish_reason,
    is_truncated,
)
from emulator.settings.settings import Settings
from emulator.upstream.failures import CONTEXT_CODE
from emulator.upstream.interface import MAX_REPLY_CHARS
from emulator.upstream.upstreams import AnswerUpstream
from sandbox.engine import fresh_seed
from sandbox.programs.server import ProgramServer


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """Yields the events of one choice of one request."""

    upstream: AnswerUpstream
    programs: ProgramServer
    habits: ModelHabits
    fingerprints: Fingerprints
    request: AnswerRequest
    open_run: OpenRun | None = None
    """The run of a program that stays open between the parts of this answer."""
    open_session: Callable[[], InterpreterSession] | None = None
    """Opens the code interpreter, if the model may use one."""

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
            self.programs,
            self.request.toolset,
            order=self.request.order,
            one_at_a_time=self.request.call_policy.one_at_a_time,
            client=self.request.client,
            open_run=self.open_run,
        )
        resumed: ContinuedProgram | EndedProgram | FinalReply | None = None
        if session is not None:
            resumed = yield from resume_cell(
                session, self.request.chat.messages, self.request.toolset, self.request.client
            )
        resumed = resumed or self._resume_program(driver)
        if isinstance(resumed, FinalReply):
            metrics.TURNS_SAVED.inc()
            yield ModelViewReport(ModelView(basis=self._basis))
            yield Finish("tool_calls", Usage())
        elif isinstance(resumed, ContinuedProgram):
            metrics.TURNS_SAVED.inc()
            yield UpstreamAccepted(turns_saved=1)
            finished = finished_program(self.request.chat)
            if finished is not None and not resumed.calls[0].caller:
                yield finished
            yield from resumed.calls
            if resumed.saved is not None:
                yield ModelViewReport(ModelView(program=resumed.saved))
            yield Finish("tool_calls", Usage())
        else:
            yield from self._ask_model(driver, session, resumed)

    def _resume_program(self, driver: Driver) -> ContinuedProgram | EndedProgram | None:
        """Resume the program whose results end the history."""
        if not self.request.call_policy.programs:
            return None
        chat = self.request.chat
        messages = chat.messages
        has_results = last_result(messages).role == "tool"
        views = [model_view_of(message) for message in messages if message.model_view]
        saved = next((one.program for one in reversed(views) if one.program), None)
        if saved is None and chat.shows_programs and has_results:
            saved = self.fingerprints.find_program(messages)
        if saved is None or (not has_results and is_superseded(messages, saved.ids)):
            return None  # it has ended, and the model has answered
        with translate_sandbox_errors():
            return resume(
                driver,
                saved,
                messages,
                self.request.client,
                drops_if_busy=self.request.is_continued,
            )

    def _ask_model(
        self, driver: Driver, session: InterpreterSession | None, ended: EndedProgram | None
    ) -> Iterator[AnswerEvent]:
        """Start with the first prompt; ``ended`` is a program whose output the model reads now.

        Of a program that the client sees, the model sees the same.
        """
        request, finished = self.request, finished_program(self.request.chat, ended)
        resumed_cell = session is not None and ended is not None
        if finished is not None:
            request = request.with_messages(with_finished_program(request.chat.messages, finished))
        if ended is not None and is_shown(ended, request.chat.messages):
            ended = None
        if session is not None:
            request = request.with_messages(session.with_files(request.chat.messages))
        chat = request.chat
        if ended is not None and (
            shows_only_calls(ended) or locate_program(ended, chat.messages) is None
        ):
            ended = None
        current = self.habits.usual_dialect(self._model_key) if request.history.store else "python"
        dialect = dialect_of(chat.messages, current)
        files = session.new_files(chat.messages) if session else []
        prompt = first_turn(
            PromptInputs(
                request=request, habit=dialect, ended=ended, session=session, new_files=files
            )
        )
        # The history does not have yet what a program or a cell that has just ended printed.
        if not (ended or resumed_cell):
            request.check_length(prompt.messages)
        state = TurnState(
            prompt.messages,
            prompt.fields,
            request.call_policy,
            session,
            Quotations(chat.messages, request.toolset, request.hosted),
            way=prompt.reply,
            uses_label=uses_label(chat.messages),
            new_files=files,
        )
        if ended is not None:
            ended = replace(ended, results=results_digest(ended.ids, chat.messages))
        for event in self._with_fallback(driver, state):
            if isinstance(event, Finish):
                waits = session is not None and event.reason == "tool_calls"
                yield ModelViewReport(
                    ModelView(
                        ended,
                        tuple(state.repair_messages),
                        tuple(state.new_files),
                        dialect,
                        state.uses_label,
                        self._basis if waits else None,
                        state.program,
                    )
                )
            yield event
            if finished is not None:  # after the first `UpstreamAccepted`
                yield finished
                finished = None

    @property
    def _model_key(self) -> ModelKey:
        return self.settings.base_url, self.request.route.model, self.request.client

    def _with_fallback(self, driver: Driver, state: TurnState) -> Iterator[AnswerEvent]:
        """Ask the model. If no better reply comes, send the repeated call that it was asked about, else the
        words of the standing reply."""
        try:
            yield from self._turns(driver, state)
        except (ModelFailed, UpstreamFailed) as error:
            if state.repeated_call is not None:
                yield from state.repeated_call.program.release_calls()
                self._save(state.repeated_call, state)
                yield Finish("tool_calls", state.usage)
            elif state.standing is not None and not self._requires_form(state):
                shown = [*state.standing.show_rest()]
                if not (shown or state.sent or state.unfinished_block):
                    raise
                words = (
                    f"No better reply came; an earlier one's words are the answer: {error.message}"
                )
                traces.note("no-better-reply", words, FIT)
                yield from shown
                yield Finish("length" if state.unfinished_block else "stop", state.usage)
            else:
                raise

    def _requires_form(self, state: TurnState) -> bool:
        """Return True if words alone are no answer to the request."""
        return state.call_policy.required or self.request.answer_format is not None

    def _turns(self, driver: Driver, state: TurnState) -> Iterator[AnswerEvent]:
        """Ask the model until a reply is the answer."""
        seed = fresh_seed()
        verdict: Verdict = FinalReply()
        while True:
            reply = new_reply(
                self.request,
                driver,
                state,
                seed=seed,
                reasoning_start=self._reasoning_start(state),
                seal=self._seal,
            )
            try:
                finish_reason = yield from self._read(reply, state)
            except UpstreamFailed as error:
                if not state.attempt and _may_refuse_constraint(error, state.fields):
                    hint = "the proxy sent response_format; --no-grammar omits it"
                    raise replace(error, message=f"{error.message} ({hint})") from error
                # The repair request may exceed the model's context: then the first fault is reported.
                if state.attempt and isinstance(verdict, UnusableReply) and error.status == 400:
                    raise state.model_failed(verdict, state.last_text or "") from error
                raise
            state.sent += reply.prose.sent
            state.uses_label |= reply.draft.uses_label
            written = reply.text
            if state.question is not None:
                note_question(state.question, _answer_to_question(reply))
            if reply.says_run and state.standing is not None:
                reply = state.standing
                with translate_sandbox_errors():
                    yield from reply.run_asked()
            verdict = reply.verdict
            record_verdict(verdict, finish_reason)
            reason = yield from self._act(reply, written, verdict, finish_reason, state)
            if reason is not None:
                stays = state.question is not None or reply.repeats_answer
                if stays and state.standing and not reply.draft.calls:
                    yield from state.standing.show_rest()
                    yield from state.standing.extras
                else:
                    yield from reply.extras
                stop_sequence = reply.prose.stop_sequence if reason == "stop" else None
                yield Finish(reason, state.usage, stop_sequence)
                return

    def _act(
        self,
        reply: ReplyReader,
        written: str,
        verdict: Verdict,
        finish_reason: str | None,
        state: TurnState,
    ) -> Generator[AnswerEvent, None, FinishReason | None]:
        """Act on a verdict. ``written`` is the last reply's text: RUN, if ``reply`` is the one that was asked
        about. Returns the answer's finish reason, or None to ask the model again."""
        if reply.draft.calls:
            self._save(reply.draft, state)
            return "length" if reply.draft.truncated_block else "tool_calls"
        if isinstance(verdict, CellResult):
            exchange, files = tuple(state.repair_messages), tuple(state.new_files)
            last = state.add_cell_result(reply, verdict)
            view = ModelView(exchange=exchange, files=files)
            yield ModelViewReport(view, of_cell=True, last=last)
            return None
        if isinstance(verdict, FinalReply):
            note_mention(reply.words, reply.reasoning, self.request.toolset)
            return answer_finish_reason(finish_reason)
        if verdict.kind == "cut":
            filtered = finish_reason == "content_filter"
            if filtered or not state.can_continue(reply, self.settings):
                yield from reply.release_prose()
                return answer_finish_reason(finish_reason or "length")
        elif verdict.kind == "asked" and state.can_ask(written, self.settings):
            if self.request.answer_format is None:
                yield from reply.release_prose()
        elif finish_reason and is_truncated(finish_reason):
            return answer_finish_reason(finish_reason)
        return self._repair(reply, written, verdict, state)

    def _repair(
        self, reply: ReplyReader, written: str, verdict: UnusableReply, state: TurnState
    ) -> FinishReason | None:
        """Ask for a better reply. Raises `ModelFailed`."""
        metrics.REPAIRS.labels(verdict.kind).inc()
        if not state.can_ask(written, self.settings):
            state.standing = reply if verdict.kind == "asked" else state.standing or reply
            raise state.model_failed(verdict, written)
        if retry_fields := self._retry_fields(verdict):
            state.fields |= retry_fields
            state.way = JSON
        state.add_repair(reply, written, verdict)
        if verdict.kind != "asked":
            note_repair(verdict)
        return None

    def _seal(self, saved: SavedProgram, program: str) -> str:
        return self.fingerprints.seal(replace(saved, question=self._question), program)

    @property
    def _basis(self) -> Basis:
        return Basis.of(self.request.client, self.request.chat.messages)

    @property
    def _question(self) -> str:
        return question_digest(self.request.client, self.request.chat.messages)

    def _reasoning_start(self, state: TurnState) -> ReasoningStart:
        """What is known about how the next reply starts. One name may mean several models: a wrong guess
        delays or shows reasoning, but hides no answer."""
        guess = reasoning_start_of(self.request.profile, self.request.route.model)
        start = self.habits.reasoning_start(self._reasoning_key, guess)
        # The truncated block that the next reply continues may have been a draft inside reasoning.
        perhaps = state.unfinished_block and start is ReasoningStart.UNKNOWN
        return ReasoningStart.PERHAPS_INSIDE if perhaps else start

    @property
    def _reasoning_key(self) -> ModelKey:
        return (*self._model_key, self.request.chat.reasoning_switches)

    def _read(
        self, reply: ReplyReader, state: TurnState
    ) -> Generator[AnswerEvent, None, str | None]:
        """Read one reply. Returns the upstream's finish reason, or None if the proxy closed the reply."""
        finish_reason: str | None = None
        size = 0
        accepted = state.session.accepted() if state.session else UpstreamAccepted()
        self.programs.get_ready()  # while the model generates
        with translate_sandbox_errors():
            with self.upstream.open(state.messages, state.fields) as stream:
                state.counter.start_turn(state.messages)
                metrics.MODEL_TURNS.inc()
                reply.record()
                yield replace(accepted, headers=stream.headers, ignored=self.request.unscored)
                for delta in read_deltas(stream, self.request.profile, state.counter, reply.extras):
                    size += len(delta.content) + len(delta.reasoning)
                    yield from reply.feed(delta.content, delta.reasoning)
                    finish_reason = delta.finish_reason or finish_reason
                    if reply.done:
                        break
                    if size > MAX_REPLY_CHARS:
                        finish_reason = "length"
                        break
            yield from reply.close(cut_off=not reply.done and is_truncated(finish_reason))
        if reply.reasoning_start is not None:
            self.habits.record_start(self._reasoning_key, reply.reasoning_start)
        return finish_reason

    def _save(self, draft: Draft, state: TurnState) -> None:
        """Record the dialect of the calls, and keep the program until their results come."""
        self.habits.record_dialects(self._model_key, draft.program.dialects)
        if self.request.call_policy.programs and (saved := draft.saved_program()) is not None:
            state.program = replace(saved, question=self._question)

    def _retry_fields(self, verdict: UnusableReply) -> dict[str, Any]:
        """The constraint to valid calls, if the operator says that the upstream accepts one."""
        field = self.settings.retry_grammar
        toolset, policy = self.request.toolset, self.request.call_policy
        free = field == "off" or self.request.chat.shows_programs
        is_faulty = verdict.kind == "asked" and verdict.facts["diagnostics"]
        if free or not toolset.tools or not (is_faulty or verdict.kind in ("invalid", "required")):
            return {}
        schema = reply_schema(toolset.tools, replace(policy, required=True))
        return constraint(field, schema) if schema else {}


def _answer_to_question(reply: ReplyReader) -> str:
    if reply.says_run:
        return SAID_RUN
    if reply.says_no:
        return "said NO"
    return "wrote a call" if reply.draft.calls else "did not say RUN"


def _may_refuse_constraint(error: UpstreamFailed, fields: Mapping[str, Any]) -> bool:
    """Return True if the server may not know the field that constrains its reply."""
    is_refusal = error.status in (400, 422) and error.code != CONTEXT_CODE
    return is_refusal and "response_format" in fields
