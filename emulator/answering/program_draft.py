"""The program in a reply: blocks -> statements -> calls. Knows nothing of prose or HTTP.

For each block: `start_block`, `feed` for its text, `end_block`, and, if the block is still `is_unsettled`,
`settle` once it is known whether the reply is that block alone: `judge` decides whether it runs. After each
new statement that calls a tool the program runs from its start (`ProgramRuns`), and its new calls are sent,
as soon as the block is known to run, until

* the program waits for results: later blocks are read for their statements, but nothing more runs;
* the program is rejected: ``diagnostics`` says why. Calls that were sent remain; without any the model is
  asked for a better block;
* the reply is truncated: ``truncated_block`` is the block to continue, and only complete statements count.

A block that is no call of a tool is returned as text, one about which the model is asked as `HeldText`:
`run_doubtful` runs it after all. What was sent never changes: a run that makes other
calls than before is rejected (`ReplayDiverged`), and a call whose arguments were streamed early (`EarlyCall`)
but that does not become that call ends the answer with `ModelFailed`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Literal

from emulator import metrics
from emulator.answering.continuation import TAIL
from emulator.answering.draft_block import LABEL, DraftBlock
from emulator.answering.early_call import EarlyCall
from emulator.answering.forced_call import ForcedCall
from emulator.answering.judge import Decision, Judge, Outcome, Place
from emulator.answering.open_text import SYNTAXES
from emulator.answering.program_runs import ProgramRuns
from emulator.answering.quotations import Quotations
from emulator.answering.recording import record_block, record_run, record_shown
from emulator.answering.shown_program import ShownProgram
from emulator.answering.statement_reader import StatementReader
from emulator.answering.verdicts import FinalReply, UnusableReply, Verdict
from emulator.errors import ModelFailed
from emulator.events import AnswerEvent, ToolCall, call_id
from emulator.programs.program import Call, Program
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reading.readers import READERS, Unreadable
from emulator.tools.tool import Tool


class HeldText(str):
    """A block about which the model is asked: the user reads it if it does not run."""

    __slots__ = ()


class ProgramDraft:
    """Collects the blocks of one reply that call offered tools, and runs them."""

    def __init__(
        self,
        runs: ProgramRuns,
        judge: Judge,
        quotations: Quotations,
        *,
        stream_calls: Literal["delta", "statement", "block"] = "statement",
        stream_arguments: bool = False,
        shown: ShownProgram | None = None,
        forced: ForcedCall | None = None,
    ) -> None:
        """``stream_calls`` as the setting: with "delta" the first call is decided as soon as it has a long
        text, and with ``stream_arguments`` sent while the model is still writing it. ``forced`` is the only
        call that the reply may make."""
        self._runs = runs
        self._judge = judge
        self._toolset = runs.toolset
        self._quotations = quotations
        self._forced = forced
        self._reader = StatementReader(runs.toolset, quotations, forced=forced is not None)
        self._stream_calls = stream_calls
        self._stream_arguments = stream_arguments
        self._shown = shown or ShownProgram(runs.toolset)
        self._id = secrets.token_hex(10)
        self.names = self._reader.names
        self.program = Program()
        self.calls: list[ToolCall] = []
        self.dialects: set[str] = set()
        self.diagnostics: list[Diagnostic] = []
        self.truncated_block = ""
        self._early: EarlyCall | None = None
        self._block: DraftBlock | None = None
        """The block that is being read."""
        self._unsettled: list[DraftBlock] = []
        """Blocks in a row about which the rest of the reply decides."""
        self._suspect: DraftBlock | None = None
        """The block whose only fault is that it repeats earlier calls."""
        self._quoted: list[str] = []
        self._doubtful: list[DraftBlock] = []
        """The blocks about which the model is asked."""
        self.uses_label = False
        """Whether a block was labelled as the prompt says."""
        self._shown_after_calls = False
        self._last_dialect = "python"
        self._written = ""
        """The program with its comments; "" if it was merged from several blocks."""
        self._given_up: Program | None = None
        """The program up to the error for which it was rejected."""

    @property
    def offered_names(self) -> list[str]:
        """The Python names of the offered functions."""
        return sorted(self._toolset.names)

    @property
    def has_code(self) -> bool:
        """Whether a program has started: text after it is not prose."""
        return bool(self.program.statements)

    @property
    def code(self) -> str:
        return self.program.source

    @property
    def is_done(self) -> bool:
        """Whether the rest of the reply can be skipped: the program waits for results, or is rejected.

        The current block is still read to its end, because its rest runs when the results arrive.
        """
        waits = self._runs.waits or bool(self._shown.id)
        waits = waits and self._block is None and not self._unsettled
        return (waits and not self.expects_blocks) or bool(self.diagnostics)

    @property
    def expects_blocks(self) -> bool:
        """Whether the program waits after an element or JSON: models write parallel calls as several blocks,
        and the rest runs when the results arrive."""
        return self._runs.waits and self._last_dialect != "python"

    @property
    def is_unsettled(self) -> bool:
        """Whether the rest of the reply decides about the last blocks (`settle`)."""
        return bool(self._unsettled)

    def waits_with(self, dialect: str, raw: str) -> bool:
        """Return True if a block that begins like this may wait with the unsettled ones."""
        return not DraftBlock(dialect, READERS[dialect](self.names), [raw], True).is_trusted

    @property
    def has_open_call(self) -> bool:
        """Whether a call was sent in part. No other call may take its place."""
        return self._early is not None and self._early.is_sent and not self.calls

    @property
    def has_repeated_calls(self) -> bool:
        """Whether the only problem of the calls is that they repeat earlier ones."""
        return self._suspect is not None

    @property
    def verdict(self) -> Verdict | None:
        """None if the reply has no code."""
        quoted, output = self._quoted, self._runs.output
        if self.calls:
            return FinalReply()
        if self.diagnostics:
            return UnusableReply("invalid", {"diagnostics": self.diagnostics, "output": output})
        if self.truncated_block:
            return UnusableReply("cut", {"tail": self.truncated_block[-TAIL:]})
        if quoted and not self.has_code:
            return UnusableReply("quoted", {"quoted": quoted})
        if self._doubtful and not self.has_code:
            blocks = [block.inner.strip() for block in self._doubtful]
            faults = [fault for block in self._doubtful for fault in self._faults(block)]
            return UnusableReply("doubtful", {"quoted": blocks, "diagnostics": faults})
        return UnusableReply("output", {"diagnostics": output}) if self.has_code else None

    def saved_program(self) -> SavedProgram | None:
        """The program to resume when its results arrive; None if it was not read to its end."""
        unread = self.truncated_block or self._quoted or self._shown_after_calls
        if unread or not self.calls:
            return None
        failure = render(self.diagnostics)
        return SavedProgram(
            self._given_up or self.program,
            tuple(self._runs.recorded),
            tuple(call.id for call in self.calls),
            self._runs.seed,
            failure=failure,
            original_source="" if failure else self._written,
            is_shown=bool(self._shown.id),
        )

    # The blocks

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        """Start a block; ``in_a_row`` if there is no prose between it and the previous block."""
        block = DraftBlock(dialect, READERS[dialect](self.names), [raw], in_a_row)
        self._block = block
        self.note_label(block)
        # Only the first block: later calls may have to wait for its calls.
        if self._stream_calls == "delta" and self._early is None and dialect in SYNTAXES:
            self._early = block.early = EarlyCall(
                dialect,
                self._toolset,
                call_id(self._id, 0),
                is_free=lambda tool: self._is_free(block, tool),
                quotes=self._quotations.begins_call,
                streams=self._stream_arguments,
            )
        return iter(())

    def note_label(self, block: DraftBlock) -> None:
        """Later blocks of the conversation are judged by whether the model has used the label."""
        if block.label == LABEL:
            self.uses_label = self._judge.uses_label = True

    def _is_free(self, block: DraftBlock, tool: Tool) -> bool:
        """Return True if a call can be sent before its block ends."""
        if self._runs.repeats_tool(tool.name):
            return False
        block.tools.add(tool.python_name)
        return self._judge.decides_early(block)

    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]:
        """Add text to the block; yields the calls that can be sent. Raises `ModelFailed` as `end_block`
        does."""
        block = self._opened()
        block.pieces.append(raw)
        block.text.append(text)
        if block.early is not None and not block.statements:
            yield from block.early.feed(text)
        calling = self._reader.feed(block, text)
        if calling and self._stream_calls != "block" and self._runs_early(block):
            block.has_run = True
            yield from self._run(block)

    def _runs_early(self, block: DraftBlock) -> bool:
        """Return True if calls of an unfinished block can be sent."""
        if block.is_committed:
            return True
        if self._unsettled or self._forced:  # an object may be the forced call's arguments
            return False
        return self._judge.decides_early(block)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]:
        """End the block. Yields its calls, or the block as text if it is not part of a program.

        With ``cut_off`` only complete statements count, and ``truncated_block`` is set. Raises
        `ModelFailed` if a call that was streamed early did not become one.
        """
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        self._last_dialect = block.dialect
        if not cut_off:
            self._reader.close(block)
        elif block.is_program or block.means_a_call(self.names) or self._forced:
            # The last statement may look complete and still be truncated.
            self.truncated_block = block.raw
        record_block(
            block.dialect, block.pieces, block.statements, block.error, quoted=block.is_quoted
        )
        open_ = bool(self._unsettled) or self._judge.decide(block).outcome is Outcome.OPEN
        is_call = block.is_program or block.means_a_call(self.names)
        if cut_off:
            yield from self.settle(Place.LAST)
        elif open_ and is_call and not block.is_committed:
            self._unsettled.append(block)
            return
        yield from self._settle(block, Place.LAST, cut_off=cut_off)

    def settle(self, place: Place) -> Iterator[AnswerEvent | str]:
        """Decide what the last blocks are. Yields as `end_block` does."""
        blocks, self._unsettled = self._unsettled, []
        for block in blocks:
            yield from self._settle(block, place)

    def _settle(
        self, block: DraftBlock, place: Place, *, cut_off: bool = False
    ) -> Iterator[AnswerEvent | str]:
        if self._forced and not cut_off and self._is_object(block, self._forced):
            yield block.as_shown
            return
        means_call = block.is_program or block.means_a_call(self.names)
        unknown = [] if means_call or cut_off else self._judge.unknown_calls(block)
        decision = self._judge.decide(block, place)
        runs = block.is_committed or decision.outcome is Outcome.RUNS
        if block.is_quoted and decision.outcome is not Outcome.SHOWN:
            self._quoted += block.quoted
            runs, unknown = True, []
        if runs or not (means_call or unknown):
            yield from self._run_block(block, unknown, means_call=means_call, cut_off=cut_off)
        elif decision.outcome is Outcome.SHOWN or not cut_off:
            yield self._show(block, decision)

    def _run_block(
        self, block: DraftBlock, unknown: Sequence[Diagnostic], *, means_call: bool, cut_off: bool
    ) -> Iterator[AnswerEvent | str]:
        """Run a block; a block that is no call is text."""
        if means_call and not cut_off and block.error:
            self._reject(block.error.diagnostics, block.added_to(self.program))
        elif block.is_program:
            yield from self._run(block)
            if not self.diagnostics and (self.calls or not block.is_quoted):
                self._append(block)
            elif block.is_quoted and not self.calls:
                yield block.as_shown
        elif self.truncated_block:
            pass  # neither a call nor prose
        elif unknown:
            self._reject(unknown)
        elif not self.has_open_call:
            self._judge.remember_shown(block)
            yield block.as_shown
        if self.has_open_call and not self.truncated_block:
            raise _incomplete_call("it did not become a call")

    def run_doubtful(self) -> Iterator[AnswerEvent]:
        """Run the blocks about which the model was asked: it said that they should."""
        blocks, self._doubtful = self._doubtful, []
        self._runs.allow_all_calls()
        for block in blocks:
            unknown = () if block.is_program or block.error else self._judge.unknown_calls(block)
            for event in self._run_block(block, unknown, means_call=True, cut_off=False):
                if not isinstance(event, str):
                    yield event

    def read_object(self, prose: str) -> Iterator[AnswerEvent]:
        """Make the forced call, if the reply has no other and its prose is an object (`forced_call`)."""
        if self._forced is None or self.verdict is not None:
            return
        try:
            statement = self._forced.statement(prose)
        except Unreadable as error:
            self._reject(error.diagnostics)
            return
        if statement is None:
            return
        block = DraftBlock("json", READERS["json"](self.names), [prose], False, [prose])
        self._reader.add(block, [statement])
        record_block(block.dialect, block.pieces, [statement], quoted=block.is_quoted)
        if block.is_quoted:
            self._quoted += block.quoted
            return
        yield from self._run(block)
        if not self.diagnostics:
            self._append(block)

    def finish(self) -> Iterator[AnswerEvent]:
        """The upstream's connection is closed."""
        if (block := self._block) is not None:  # the rest of the reply was skipped
            record_block(block.dialect, block.pieces, block.statements, block.error)
        return iter(())

    def release_calls(self) -> Iterator[AnswerEvent]:
        """Send the repeated calls, because the model gave no better reply."""
        block = self._suspect
        if block is None:
            return
        self._suspect, self._given_up = None, None
        self._runs.allow_all_calls()
        self.diagnostics.clear()
        yield from self._run(block)
        self._append(block)

    def _is_object(self, block: DraftBlock, forced: ForcedCall) -> bool:
        """Return True if the block has the arguments of the forced call, and no call."""
        is_object = block.dialect == "json" or block.inner.lstrip().startswith("{")
        return is_object and not block.is_committed and forced.has_arguments(block.inner)

    def _opened(self) -> DraftBlock:
        assert self._block is not None, "the splitter starts a block before it feeds it"
        return self._block

    def _show(self, block: DraftBlock, decision: Decision) -> str:
        """The text of a block that does not run, or not yet."""
        self.truncated_block = ""
        record_shown(decision.row)
        self._judge.remember_shown(block)
        self._shown_after_calls |= block.has_run
        text = block.as_python if self._judge.constrained else block.as_shown
        if decision.outcome is Outcome.ASKED:
            self._doubtful.append(block)
            self._judge.has_asked = True
            return HeldText(text)
        return text

    def _faults(self, block: DraftBlock) -> list[Diagnostic]:
        """What keeps a block from running, as far as it can be seen without running it."""
        if block.error:
            return list(block.error.diagnostics)
        if not block.is_program:
            return self._judge.unknown_calls(block)
        faults = self._runs.faults(Program(tuple(block.statements)))
        return [self._reader.foreign.as_written(one, self.program) for one in faults]

    # The program

    def _append(self, block: DraftBlock) -> None:
        """Make the block a part of the program."""
        if (program := block.added_to(self.program)) is not None:
            self._written = _as_written(block, program)
            self.program = program
            record_run(program)
        self.dialects.add(block.dialect)

    def _run(self, block: DraftBlock) -> Iterator[AnswerEvent]:
        program = block.added_to(self.program)
        if program is None or self._runs.changes_nothing(program):
            return
        if wrong := self._shown.wrong_callers(block, after_calls=bool(self.calls)):
            self._reject(wrong)
            return
        record_run(program)
        result = self._runs.run(program)
        if result.diagnostics:
            self._reject(result.diagnostics, program)
        if result.repeats:
            self._suspect = block
        if result.quoted:
            block.quoted += [self._quotations.written(call) for call in result.quoted]
            self._quoted += block.quoted
        if not result.calls:
            return
        first = result.calls[0]
        if self.has_open_call and not self._matches_early_call(first):
            raise _incomplete_call("it became a different call")
        if not self.calls:
            written = _as_written(block, program)
            saved = SavedProgram(program, (), (), self._runs.seed, original_source=written)
            yield from self._shown.start(block, first.name, call_id(self._id, 0), saved)
        calls = [
            ToolCall(call_id(self._id, place), call.name, call.arguments, call.kind, self._shown.id)
            for place, call in enumerate(result.calls, len(self.calls))
        ]
        self.calls += calls
        metrics.TOOL_CALLS.inc(len(calls))
        record_run(program, result.call_sites, [call.id for call in self.calls])
        yield from calls

    def _matches_early_call(self, call: Call) -> bool:
        return self._early is None or self._early.matches(call.name, call.arguments)

    def _reject(self, diagnostics: Sequence[Diagnostic], program: Program | None = None) -> None:
        if self.has_open_call:
            raise _incomplete_call(render(diagnostics))
        self.diagnostics += [self._reader.foreign.as_written(one, program) for one in diagnostics]
        self._given_up = self._given_up or program


def _as_written(block: DraftBlock, program: Program) -> str:
    """The program with its comments; "" if it was merged from several blocks."""
    whole = len(program.statements) == len(block.statements)
    return block.inner if whole and block.dialect == "python" else ""


def _incomplete_call(reason: str) -> ModelFailed:
    message = "The model did not complete a call whose arguments were already being sent."
    return ModelFailed(f"{message}\n{reason}", code="model_invalid")
