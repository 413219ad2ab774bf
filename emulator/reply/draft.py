"""The code of a reply: its blocks, and what becomes of each. Knows nothing of prose or HTTP.

For each block: `start_block`, `feed` for its text, `end_block`, and, if the block is still `is_unsettled`,
`settle` once it is known whether the reply is that block alone: `judge` decides whether it runs.

A block that runs is a part of the program (`reply_program`) or, with a code interpreter, the cell
(`reply_cell`). After each new statement that calls a tool the program runs from its start, and its new calls
are sent, as soon as the block is known to run, until

* the program waits for results: later blocks are read for their statements, but nothing more runs;
* the program is rejected: its diagnostics say why;
* the reply is truncated: ``truncated_block`` is the block to continue, and only complete statements count.

A block that is neither is returned as text, also one about which the model is asked: `run_asked` runs it
after all. A marked block that does not run, or a whole reply that is asked about, is `withheld`: it is shown
if no better reply comes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Literal

from emulator.conversation.forced_call import ForcedCall, only_fitting_call
from emulator.core.events import AnswerEvent, ToolCall
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.openings import MARK
from emulator.reading.readers import READERS, Unreadable
from emulator.reading.statements import unreadable
from emulator.reply.continuation import TAIL
from emulator.reply.draft_block import DraftBlock
from emulator.reply.judge import (
    FAULTY,
    NAMELESS,
    NO_CALL,
    QUOTED,
    UNMARKED,
    BlockOutcome,
    Decision,
    Judge,
    Place,
)
from emulator.reply.question import Question
from emulator.reply.quotations import Quotations
from emulator.reply.recording import note_shown, record_block
from emulator.reply.reply_cell import ReplyCell
from emulator.reply.reply_program import ReplyProgram
from emulator.reply.statement_reader import StatementReader
from emulator.reply.unknown_syntax import MAX_CHARS, has_all_of_a_call
from emulator.reply.verdicts import FinalReply, UnusableReply, Verdict


class Draft:
    """Collects the blocks of one reply that call offered tools, and runs them."""

    def __init__(
        self,
        program: ReplyProgram,
        judge: Judge,
        quotations: Quotations,
        *,
        cell: ReplyCell | None = None,
        stream_calls: Literal["statement", "block"] = "statement",
        shown: Callable[[DraftBlock], str] = lambda block: block.as_shown,
        forced: ForcedCall | None = None,
    ) -> None:
        """``cell`` with a code interpreter: blocks are then judged at their end. ``stream_calls`` as the
        setting. ``shown`` writes a block that does not run for the user; ``forced`` is the only call that
        the reply may make."""
        self.program = program
        self._cell = cell
        self._judge = judge
        self._quotations = quotations
        self.shown = shown
        self._forced = forced
        self._reader = StatementReader(
            program.toolset, quotations, program.foreign, forced=forced is not None
        )
        self._stream_calls = stream_calls
        self.names = cell.names if cell else self._reader.names
        self.truncated_block = ""
        self.uses_label = False
        """Whether a block was labelled as the prompt says."""
        self._block: DraftBlock | None = None
        """The block that is being read."""
        self._unsettled: list[DraftBlock] = []
        """Blocks in a row about which the rest of the reply decides."""
        self._questioned_blocks: list[DraftBlock] = []
        """The blocks about which the model is asked."""
        self._question_row = ""
        """Why it is asked about the first of them."""
        self.withheld: list[DraftBlock] = []
        """The blocks that neither run nor are shown yet."""
        self._is_partial = False
        """A block ran only in part: no program is kept."""
        self._last_dialect = "python"

    @property
    def offered_names(self) -> list[str]:
        """The Python names of the offered functions."""
        return sorted(self.program.toolset.names)

    @property
    def has_code(self) -> bool:
        """Whether a program or a cell has started: text after it is not prose."""
        return self.program.has_code or (self._cell is not None and self._cell.has_code)

    @property
    def code(self) -> str:
        return (self._cell.code if self._cell else "") or self.program.so_far.source

    @property
    def calls(self) -> list[ToolCall]:
        return [*self.program.calls, *(self._cell.calls if self._cell else ())]

    @property
    def is_done(self) -> bool:
        """Whether the rest of the reply can be skipped: the code waits for results, or is rejected.

        The current block is still read to its end: its rest runs when the results arrive, or is shown if no
        better reply comes.
        """
        if self._block is not None:
            return False
        if self.program.diagnostics:
            return True
        if self._cell is not None and self._cell.has_code:
            return True
        return self.program.waits and not (self._unsettled or self.expects_blocks)

    @property
    def expects_blocks(self) -> bool:
        """Whether the program waits after an element or JSON: models write parallel calls as several blocks,
        and the rest runs when the results arrive."""
        return self.program.needs_result and self._last_dialect != "python"

    @property
    def is_unsettled(self) -> bool:
        """Whether the rest of the reply decides about the last blocks (`settle`)."""
        return bool(self._unsettled)

    @property
    def is_undecided(self) -> bool:
        """Whether a block is not read to its end, or `is_unsettled`."""
        return self._block is not None or self.is_unsettled

    def waits_with(self, dialect: str, raw: str) -> bool:
        """Return True if a block that begins like this may wait with the unsettled ones."""
        if any(block.cell is not None for block in self._unsettled):
            return False
        if self._cell is not None and dialect == "python":
            return False  # what became of the calls before it decides whether it is a cell
        return not self.is_marked(dialect, raw)

    def is_marked(self, dialect: str, raw: str) -> bool:
        """Return True if a block that begins like this says that it runs."""
        return DraftBlock(dialect, READERS[dialect](self.names), [raw], True).is_marked

    @property
    def verdict(self) -> Verdict | None:
        """None if the reply has no code."""
        program = self.program
        if self._cell is not None and self._cell.verdict is not None:
            return self._cell.verdict
        if self.calls:
            return FinalReply()
        if program.diagnostics:
            facts = {"diagnostics": program.diagnostics, "output": program.output}
            return UnusableReply("invalid", facts)
        if self.truncated_block:
            return UnusableReply("cut", {"tail": self.truncated_block[-TAIL:]})
        if self._questioned_blocks and not self.has_code:
            return self._ask_about(self._questioned_blocks)
        if program.has_code:
            return UnusableReply("output", {"diagnostics": program.output})
        return None

    def _ask_about(self, blocks: Sequence[DraftBlock]) -> UnusableReply:
        texts = tuple((block.cell or block.inner).strip() for block in blocks)
        is_quoted = any(block.is_quoted for block in blocks)
        # A quotation's faults would teach the model to make a call of what another author wrote.
        faults = [] if is_quoted else [one for block in blocks for one in self.faults(block)]
        question = Question(texts, is_quoted, bool(faults), self._question_row or QUOTED.row)
        return UnusableReply("asked", {"question": question, "diagnostics": faults})

    def saved_program(self) -> SavedProgram | None:
        """The program to resume when its results arrive; None if it was not read to its end. A cell is not
        stored: it waits in its kernel."""
        unread = self.truncated_block or self._is_partial
        return None if unread or not self.program.calls else self.program.saved()

    # The blocks

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        """Start a block; ``in_a_row`` if there is no prose between it and the previous block."""
        block = DraftBlock(dialect, READERS[dialect](self._reader.names), [raw], in_a_row)
        self._block = block
        if block.label == MARK:  # later blocks of the conversation are judged by it
            self.uses_label = self._judge.uses_label = True
        if self._cell is not None:
            is_python = self._cell.is_python(block) and not self.program.calls
            if is_python and self._judge.decides_cells_early(block):
                yield from self._cell.start()

    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]:
        """Add text to the block; yields the calls that can be sent."""
        block = self._opened()
        block.pieces.append(raw)
        block.text.append(text)
        if self.program.diagnostics:
            return
        if self._cell is not None:
            yield from self._cell.feed(text)
            return
        calling = self._reader.feed(block, text)
        if calling and self._stream_calls != "block" and self._runs_early(block):
            block.has_run = True
            yield from self._run(block)

    def _runs_early(self, block: DraftBlock) -> bool:
        """Return True if calls of an unfinished block can be sent."""
        if self._unsettled or self._forced:  # an object may be the forced call's arguments
            return False
        return self._judge.decides_early(block)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]:
        """End the block. Yields its calls, or the block as text if it is not code to run.

        With ``cut_off`` only complete statements count, and ``truncated_block`` is set.
        """
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        if self.program.diagnostics:
            record_block(block.dialect, block.pieces, block.statements, block.error)
            self._withhold(block, is_asked=False)
            return
        if self._cell is not None:
            # After calls a block is a part of their program: it waits for their results.
            may_be_cell = not self.program.calls
            if may_be_cell and (yield from self._end_cell(self._cell, block, cut_off=cut_off)):
                return
            self._reader.feed(block, block.inner)
        self._last_dialect, block.is_cut = block.dialect, cut_off
        if not cut_off:
            self._reader.close(block)
        elif self._judge.means_call(block) or self._forced:
            # The last statement may look complete and still be truncated.
            self.truncated_block = block.raw
        record_block(
            block.dialect, block.pieces, block.statements, block.error, quoted=block.is_quoted
        )
        if cut_off:
            yield from self.settle(Place.LAST)
        elif self._is_open(block):
            self._unsettled.append(block)
            return
        yield from self._settle(block, Place.LAST, cut_off=cut_off)

    def _is_open(self, block: DraftBlock) -> bool:
        """Return True if what follows a block decides about it: whether it runs, or whether it is shown
        before the model is asked."""
        decision = self._decide(block)
        if decision.outcome is BlockOutcome.SHOWN:
            return False
        is_asked = decision.outcome is BlockOutcome.ASKED and not block.is_marked
        return is_asked or decision.outcome is BlockOutcome.OPEN or bool(self._unsettled)

    def settle(self, place: Place) -> Iterator[AnswerEvent | str]:
        """Decide what the last blocks are. Yields as `end_block` does."""
        blocks, self._unsettled = self._unsettled, []
        for block in blocks:
            if self._cell is not None and block.cell is not None:
                yield from self._settle_cell(self._cell, block, place)
            else:
                yield from self._settle(block, place)

    def _end_cell(
        self, cell: ReplyCell, block: DraftBlock, *, cut_off: bool
    ) -> Generator[AnswerEvent | str, None, bool]:
        """Returns False if the block is no cell."""
        code = cell.code_of(block)
        if code is None or cut_off:
            was_sent = cell.is_started
            yield from cell.abandon(has_code=cut_off)
            return was_sent and code is not None
        cell.mark(block, code)
        if block.is_quoted and cell.is_started:
            yield from cell.abandon(has_code=False)
            self._question_row = self._question_row or QUOTED.row
            self._withhold(block, is_asked=True)
        else:
            yield from self._settle_cell(cell, block)
        return True

    def _settle_cell(
        self, cell: ReplyCell, block: DraftBlock, place: Place | None = None
    ) -> Iterator[AnswerEvent | str]:
        decision = self._judge.decide_cell(block, place)
        if decision.outcome is BlockOutcome.RUNS or cell.is_started:
            yield from cell.accept(block)
        elif place is None and decision.outcome is not BlockOutcome.SHOWN:
            self._unsettled.append(block)
        elif decision.outcome is BlockOutcome.SHOWN:
            yield from self._show(block, decision)
        else:
            yield from self._ask(block, decision, place or Place.LAST)

    def _decide(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge a block. What runs without a mark must have no fault."""
        decision = self._judge.decide(block, place)
        may_be_faulty = decision in UNMARKED and not (block.has_run or self.program.calls)
        return FAULTY if may_be_faulty and self.faults(block) else decision

    def _settle(
        self, block: DraftBlock, place: Place, *, cut_off: bool = False
    ) -> Iterator[AnswerEvent | str]:
        if self._forced and not cut_off and self._is_object(block, self._forced):
            yield block.as_shown
            return
        decision = self._judge.decide(block, place) if cut_off else self._decide(block, place)
        if decision.outcome is BlockOutcome.RUNS:
            if block.has_statements or not cut_off:
                yield from self._run_block(block, cut_off=cut_off)
        elif decision.outcome is BlockOutcome.SHOWN:
            if decision is not NO_CALL or not self.truncated_block:
                yield from self._show(block, decision)
        elif not cut_off:
            yield from self._ask(block, decision, place)

    def _run_block(self, block: DraftBlock, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        """Run a block, or reject it."""
        program = self.program
        is_readable = block.error is None and block.statements
        faults = [] if is_readable or cut_off else self.faults(block)
        if faults:
            program.reject(faults, block.added_to(program.so_far))
        else:
            yield from self._run(block)
            if not program.diagnostics and not (block.is_quoted and not program.calls):
                program.append(block)
        if not program.calls:  # a call is quoted, the block is rejected, or it called nothing
            self._withhold(block, is_asked=block.is_quoted)

    def _run(self, block: DraftBlock) -> Iterator[AnswerEvent]:
        yield from self.program.run(block)
        self._is_partial |= block.is_quoted

    def run_asked(self) -> Iterator[AnswerEvent]:
        """Run the blocks about which the model was asked: it said that they should."""
        blocks, self._questioned_blocks = self._questioned_blocks, []
        self.withheld, self._is_partial = [], False
        self.program.allow_all_calls()
        for block in blocks:
            block.confirm()
            if self._cell is not None and block.cell is not None:
                yield from self._cell.accept(block)
            else:
                yield from self._run_block(block)

    def read_object(self, prose: str) -> Iterator[AnswerEvent]:
        """Make the call of which the prose has the arguments, if the reply has no other (`forced_call`)."""
        if self.verdict is not None or self._cell is not None:
            return
        forced = self._forced or only_fitting_call(prose, self.program.toolset)
        if forced is None:
            return
        try:
            statement = forced.statement(prose)
        except Unreadable as error:
            self.program.reject(error.diagnostics)
            return
        if statement is None:
            return
        block = DraftBlock("json", READERS["json"](self.names), [prose], False, [prose])
        self._reader.add(block, [statement])
        record_block(block.dialect, block.pieces, [statement], quoted=block.is_quoted)
        if block.is_quoted:
            self._withhold(block, is_asked=True)
            return
        yield from self._run(block)
        if not self.program.diagnostics:
            self.program.append(block)

    def ask_about_words(self, words: str) -> None:
        """Ask about words, which are shown already, if they are calls in a syntax that no reader knows, or
        the arguments of the only function that takes them."""
        if len(words) > MAX_CHARS:
            return
        toolset = self.program.toolset
        block = DraftBlock("json", READERS["json"](self.names), ["", words], False, [words])
        if (call := only_fitting_call(words, toolset)) and call.tool.parameters.get("required"):
            statement = call.statement(words)
            assert statement is not None, "words that fit are an object"
            block.text, decision = [statement.source], NAMELESS
            self._reader.add(block, [statement])
        elif has_all_of_a_call(words, toolset):
            hint = "write name(argument=value), or a JSON object with name and arguments"
            unknown = "this syntax of a call is unknown"
            block.error, decision = unreadable(unknown, source_line=words[:200], hint=hint), FAULTY
            self._reader.close(block)
        else:
            return
        record_block(
            block.dialect, block.pieces, block.statements, block.error, quoted=block.is_quoted
        )
        self._question_row = self._question_row or decision.row
        self._questioned_blocks.append(block)

    def finish(self) -> Iterator[AnswerEvent]:
        """The upstream's connection is closed: run the cell."""
        if (block := self._block) is not None:  # the rest of the reply was skipped
            record_block(block.dialect, block.pieces, block.statements, block.error)
        if self._cell is not None:
            yield from self._cell.run()

    def _is_object(self, block: DraftBlock, forced: ForcedCall) -> bool:
        """Return True if the block has the arguments of the forced call, and no call."""
        is_object = block.dialect == "json" or block.inner.lstrip().startswith("{")
        return is_object and forced.has_arguments(block.inner)

    def _opened(self) -> DraftBlock:
        assert self._block is not None, "the splitter starts a block before it feeds it"
        return self._block

    def _show(self, block: DraftBlock, decision: Decision) -> Iterator[str]:
        """The text of a block that does not run."""
        self.truncated_block = ""
        if decision.outcome is BlockOutcome.SHOWN and decision is not NO_CALL:
            note_shown(decision.row)
        self._judge.remember_shown(block)
        self._is_partial |= block.has_run
        block.is_shown = True
        yield block.as_shown if decision is NO_CALL else self.shown(block)

    def _ask(
        self, block: DraftBlock, decision: Decision, place: Place
    ) -> Iterator[AnswerEvent | str]:
        """Ask about a block. Among words it is shown at once; a whole reply and a marked block wait."""
        self._judge.has_asked = True
        self._question_row = self._question_row or decision.row
        if place is Place.ALONE or block.is_marked:
            self._withhold(block, is_asked=True)
        else:
            self._questioned_blocks.append(block)
            yield from self._show(block, decision)

    def _withhold(self, block: DraftBlock, *, is_asked: bool) -> None:
        """Show a block only if no better reply comes."""
        self._judge.remember_shown(block)
        if not block.is_shown:
            self.withheld.append(block)
        if is_asked:
            self._questioned_blocks.append(block)

    def faults(self, block: DraftBlock) -> list[Diagnostic]:
        """What keeps a block from running, as far as it can be seen without running it."""
        if block.cell is not None:
            return []
        if block.error:
            return list(block.error.diagnostics)
        if not block.has_statements:
            return [Diagnostic("there is no statement in this block", 1, 0, "", None)]
        return self.program.faults(block)
