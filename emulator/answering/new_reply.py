"""Set up the reader of the next reply from the request, its settings and the state of the answer."""

from __future__ import annotations

from emulator.answering.turn_state import TurnState
from emulator.conversation.answer_request import AnswerRequest
from emulator.programs.driver import Driver
from emulator.programs.repeats import repeated_calls
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from emulator.reply.draft import Draft
from emulator.reply.judge import Judge
from emulator.reply.program_runs import ProgramRuns
from emulator.reply.prose import Prose, StopFilter
from emulator.reply.reply_cell import ReplyCell
from emulator.reply.reply_program import ReplyProgram
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.shown_program import Seal, ShownProgram


def new_reply(
    request: AnswerRequest,
    driver: Driver,
    state: TurnState,
    *,
    seed: int,
    reasoning_start: ReasoningStart = ReasoningStart.OUTSIDE,
    seal: Seal | None = None,
) -> ReplyReader:
    """``seal`` makes the fingerprint of a program, if the client sees programs."""
    settings, chat = request.settings, request.chat
    required = state.call_policy.required
    # The model is asked once about calls that it repeats. They are valid: if it repeats them, they are sent.
    asks = not state.attempt and settings.repair_attempts
    judge = Judge(
        request.toolset,
        required,
        any_acts=state.way.any_call_acts,
        # A reply to a request for a block is that block, whatever its label.
        uses_label=state.uses_label and not state.attempt,
        question=state.question,
    )
    runs = ProgramRuns(
        driver,
        seed=seed,
        repeated_calls=repeated_calls(chat.messages) if asks else (),
        quotes=state.quotations.quotes_call,
    )
    shown = ShownProgram(request.toolset, seal if chat.shows_programs else None)
    cell = None
    if state.session is not None:
        order = "strict" if driver.one_at_a_time else driver.order
        cell = ReplyCell(state.session, request.toolset, state.quotations, order)
    draft = Draft(
        ReplyProgram(runs, shown),
        judge,
        state.quotations,
        cell=cell,
        stream_calls="block" if chat.shows_programs else settings.stream_calls,
        shown=state.way.shown,
        forced=request.forced_call,
    )
    hold = bool(state.attempt) or required or request.answer_format is not None
    return ReplyReader(
        draft,
        Prose(StopFilter(chat.stop), hold=hold, lead="\n\n" if state.sent else ""),
        state.call_policy,
        state.way.splitter(ReplySplitter(draft.names, reasoning_start)),
        answer_format=request.answer_format,
        question=state.question,
        answered=state.answered,
        unfinished_block=state.unfinished_block,
        follows_words=bool(state.unfinished_block) and state.follows_words,
    )
