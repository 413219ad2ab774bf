"""The program of a reply: it grows by blocks, and each run sends the calls that are new. Knows nothing of
prose, of HTTP or of what a block is for (`draft`).

What was sent never changes: a run that makes other calls than before is rejected (`ReplayDiverged`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from emulator.core import metrics
from emulator.core.events import AnswerEvent, ToolCall, call_id
from emulator.programs.program import Program
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reply.draft_block import DraftBlock, ForeignStatements
from emulator.reply.program_runs import ProgramRuns
from emulator.reply.recording import record_run
from emulator.reply.shown_program import ShownProgram


class ReplyProgram:
    """``shown`` is the program as an item of the answer, if the client sees programs."""

    def __init__(self, runs: ProgramRuns, shown: ShownProgram | None = None) -> None:
        self._runs = runs
        self._shown = shown or ShownProgram(runs.toolset)
        self._id = secrets.token_hex(10)
        self.toolset = runs.toolset
        self.foreign = ForeignStatements()
        self.so_far = Program()
        self.calls: list[ToolCall] = []
        self.dialects: set[str] = set()
        self.diagnostics: list[Diagnostic] = []
        """Why it was rejected."""
        self._suspect: DraftBlock | None = None
        """The block whose only fault is that it repeats earlier calls."""
        self._written = ""
        """The program with its comments; "" if it was merged from several blocks."""
        self._given_up: Program | None = None
        """The program up to the error for which it was rejected."""

    @property
    def first_id(self) -> str:
        """The id of its first call."""
        return call_id(self._id, 0)

    @property
    def has_code(self) -> bool:
        return bool(self.so_far.statements)

    @property
    def needs_result(self) -> bool:
        """Whether nothing more runs before the results arrive."""
        return self._runs.waits

    @property
    def waits(self) -> bool:
        """Whether later blocks belong to the next reply: a result is missing, or the client sees it."""
        return self._runs.waits or bool(self._shown.id)

    @property
    def output(self) -> str:
        return self._runs.output

    @property
    def has_repeated_calls(self) -> bool:
        """Whether the only problem of the calls is that they repeat earlier ones."""
        return self._suspect is not None

    def allow_all_calls(self) -> None:
        """The model was asked: repeated and quoted calls are its own now."""
        self._runs.allow_all_calls()

    def faults(self, block: DraftBlock) -> list[Diagnostic]:
        """What keeps a block from running, as far as it can be seen without running it."""
        program = Program((*block.statements, *block.quoted))
        return [self.foreign.as_written(one, program) for one in self._runs.faults(program)]

    def append(self, block: DraftBlock) -> None:
        """Make the block a part of the program."""
        if (program := block.added_to(self.so_far)) is not None:
            self._written = _as_written(block, program)
            self.so_far = program
            record_run(program)
        self.dialects.add(block.dialect)

    def run(self, block: DraftBlock) -> Iterator[AnswerEvent]:
        """Run the program with the block, and send its new calls."""
        program = block.added_to(self.so_far)
        if program is None or self._runs.changes_nothing(program):
            return
        if wrong := self._shown.wrong_callers(block, after_calls=bool(self.calls)):
            self.reject(wrong)
            return
        record_run(program)
        result = self._runs.run(program)
        if result.diagnostics:
            self.reject(result.diagnostics, program)
        if result.repeats:
            self._suspect = block
        block.is_quoted |= result.is_quoted
        if not result.calls:
            return
        first = result.calls[0]
        if not self.calls:
            written = _as_written(block, program)
            saved = SavedProgram(program, (), (), self._runs.seed, original_source=written)
            yield from self._shown.start(block, first.name, self.first_id, saved)
        calls = [
            ToolCall(call_id(self._id, place), call.name, call.arguments, call.kind, self._shown.id)
            for place, call in enumerate(result.calls, len(self.calls))
        ]
        self.calls += calls
        metrics.TOOL_CALLS.inc(len(calls))
        record_run(program, result.call_sites, [call.id for call in self.calls])
        yield from calls

    def reject(self, diagnostics: Sequence[Diagnostic], program: Program | None = None) -> None:
        """End the program. Calls that were sent remain; without any the model is asked for a better block."""
        self.diagnostics += [self.foreign.as_written(one, program) for one in diagnostics]
        self._given_up = self._given_up or program

    def release_calls(self) -> Iterator[AnswerEvent]:
        """Send the repeated calls, because the model gave no better reply."""
        block = self._suspect
        if block is None:
            return
        self._suspect, self._given_up = None, None
        self.allow_all_calls()
        self.diagnostics.clear()
        yield from self.run(block)
        self.append(block)

    def saved(self) -> SavedProgram:
        """The program to resume when its results arrive."""
        failure = render(self.diagnostics)
        return SavedProgram(
            self._given_up or self.so_far,
            tuple(self._runs.recorded),
            tuple(call.id for call in self.calls),
            self._runs.seed,
            failure=failure,
            original_source="" if failure else self._written,
            is_shown=bool(self._shown.id),
        )


def _as_written(block: DraftBlock, program: Program) -> str:
    """The program with its comments; "" if it was merged from several blocks."""
    whole = len(program.statements) == len(block.statements)
    return block.inner if whole and block.dialect == "python" else ""
