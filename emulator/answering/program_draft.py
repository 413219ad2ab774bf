"""The program in a reply, as it grows: blocks -> statements -> calls. Knows nothing of prose or HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence

from emulator import metrics
from emulator.answering.continuation import TAIL
from emulator.answering.draft_block import DraftBlock, ForeignStatements
from emulator.answering.early_call import EarlyCall
from emulator.answering.open_text import SYNTAXES
from emulator.answering.quotations import Quotations
from emulator.answering.recording import record_block, record_run
from emulator.answering.verdicts import FinalReply, UnusableReply, Verdict
from emulator.errors import ModelFailed
from emulator.events import AnswerEvent, ArgumentsDelta, CallStarted, ToolCall, call_id
from emulator.programs import validate
from emulator.programs.driver import Driver
from emulator.programs.program import (
    Call,
    CallRecord,
    Outcome,
    Program,
    ProgramRejected,
    ReplayDiverged,
)
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reading.readers import (
    READERS,
    Statement,
    Unreadable,
    uses_tool,
)
from emulator.reading.tool_names import cached_tool_names


class ProgramDraft:
    """Collects the blocks of one reply that call offered tools, and runs them.

    ``repeated_calls`` are valid, but returned the same result before: the model is asked first.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        required: bool,
        by_statement: bool,
        seed: int,
        repeated_calls: Collection[Call] = (),
        quotations: Quotations | None = None,
        stream_arguments: bool = False,
    ) -> None:
        """``stream_arguments``: a call may be told while the model still writes it."""
        self._driver = driver
        self._toolset = driver.toolset
        self._required = required
        self._by_statement = by_statement
        self._seed = seed
        self._repeated_calls = repeated_calls
        self._suspect: DraftBlock | None = None
        self._quotations = quotations
        self._may_stream = stream_arguments
        self._early: EarlyCall | None = None
        self._block: DraftBlock | None = None
        self._recorded: list[CallRecord] = []
        self.truncated_block = ""
        self.quoted: list[str] = []
        self._id = secrets.token_hex(10)
        self.names = cached_tool_names(self._toolset.spellings)
        self._python_names = cached_tool_names(self._toolset.names)
        self.program = Program()
        self._ran: Program | None = None
        """What has been run as far as it goes: to run it again gives nothing else."""
        self.calls: list[ToolCall] = []
        self.dialects: set[str] = set()
        self.diagnostics: list[Diagnostic] = []
        self._waits = False
        self._output = ""
        self._written = ""
        """The program as the model wrote it, with its comments; "" where blocks were put together."""
        self._foreign = ForeignStatements()
        self._given_up: Program | None = None
        """The program up to the fault for which it was rejected."""

    @property
    def offered_names(self) -> list[str]:
        """The functions that can be called, as the model writes them."""
        return sorted(self._toolset.names)

    @property
    def has_code(self) -> bool:
        """Whether a program has begun: what follows it is no prose."""
        return bool(self.program.statements)

    @property
    def code(self) -> str:
        return self.program.source

    @property
    def is_done(self) -> bool:
        """Nothing that follows can call now: the program waits for results, or is of no use.

        A block is read to its end all the same: the rest of it is for when the results have come.
        """
        return (self._waits and self._block is None) or bool(self.diagnostics)

    @property
    def verdict(self) -> Verdict | None:
        """What came of the code; None where there was none."""
        if self.calls:
            return FinalReply()
        if self.diagnostics:
            return UnusableReply(
                "invalid", {"diagnostics": self.diagnostics, "output": self._output}
            )
        if self.truncated_block:
            return UnusableReply("cut", {"tail": self.truncated_block[-TAIL:]})
        if self.quoted and not self.has_code:
            return UnusableReply("quoted", {"quoted": self.quoted})
        return UnusableReply("output", {"diagnostics": self._output}) if self.has_code else None

    def saved_program(self) -> SavedProgram | None:
        """The program, to be gone on with when results come; None if it was not read to its end."""
        if self.truncated_block or self.quoted or not self.calls:
            return None
        ids = tuple(call.id for call in self.calls)
        failure = render(self.diagnostics)
        program = self._given_up or self.program
        return SavedProgram(
            program,
            tuple(self._recorded),
            ids,
            self._seed,
            failure=failure,
            original_source="" if failure else self._written,
        )

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        """A block opens; ``in_a_row`` if no word stands between it and the block before."""
        self._block = DraftBlock(dialect, READERS[dialect](self.names), [raw], in_a_row)
        if self._may_stream and dialect in SYNTAXES:
            self._may_stream = (
                False  # only the first block: later calls may have to wait for its calls
            )
            self._early = EarlyCall(
                dialect,
                self._toolset,
                call_id(self._id, 0),
                is_free=lambda tool: all(call.name != tool.name for call in self._repeated_calls),
                quotes=lambda text: (
                    self._quotations is not None and self._quotations.contains(text)
                ),
            )
        return iter(())

    def feed(self, text: str, raw: str) -> Iterator[ToolCall | CallStarted | ArgumentsDelta]:
        """More of the block; gives the calls that can leave. Raises `ModelFailed` as `end` does."""
        block = self._opened()
        if self._early is not None and not block.statements:
            yield from self._early.feed(text)
        block.pieces.append(raw)
        block.text.append(text)
        if block.error is not None:
            return
        try:
            statements = block.reader.feed(text)
        except Unreadable as error:
            block.error = error
            return
        if self._take(block, statements) and self._by_statement:
            yield from self._run(block)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[ToolCall | str]:
        """The block is over. Gives its calls, or the block itself, as it was, if it is no program.

        With ``cut_off`` nothing is read but the statements that had closed before; ``cut`` is then the block.
        Raises `ModelFailed` where no call came of one that was told already.
        """
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        self._read_out(block, cut_off=cut_off)
        record_block(
            block.dialect, block.pieces, block.statements, block.error, quoted=block.is_quoted
        )
        if block.error and not cut_off and (block.is_program or block.means_a_call(self.names)):
            self._reject(block.error.diagnostics, block.added_to(self.program))
        elif block.is_program:
            yield from self._run(block)
            if not self.diagnostics:
                if (program := block.added_to(self.program)) is not None:
                    whole = len(program.statements) == len(block.statements)
                    as_written = whole and block.dialect == "python"
                    self._written = block.inner if as_written else ""
                    self.program = program
                    record_run(program)
                self.dialects.add(block.dialect)
        elif self.truncated_block:
            pass  # it is neither a call nor words
        elif not block.is_quoted and (unknown := self._attempted(block)):
            self._reject(unknown)
        elif not self.has_open_call:
            yield block.raw
        if self.has_open_call and not self.truncated_block:
            raise self._broken_off(["it did not become a call"])

    def _read_out(self, block: DraftBlock, *, cut_off: bool) -> None:
        if cut_off:
            # The cut fell into a statement: however whole that may look, it is half of one.
            if block.is_program or block.means_a_call(self.names):
                self.truncated_block = block.raw
        elif block.error is None:
            try:
                self._take(block, block.reader.close())
            except Unreadable as error:
                block.error = error
            if block.is_program and block.dialect != "python" and self._quotes(block.inner):
                block.is_quoted, block.is_program = True, False

    def finish(self) -> Iterator[AnswerEvent]:
        """The upstream has been let go."""
        if (block := self._block) is not None:  # nothing that follows in it was of use
            record_block(block.dialect, block.pieces, block.statements, block.error)
        return iter(())

    def _opened(self) -> DraftBlock:
        assert self._block is not None, "the splitter opens a block before it goes on"
        return self._block

    def _take(self, block: DraftBlock, statements: list[Statement]) -> bool:
        """Add statements to the block; whether there is a new call to run."""
        new = False
        for statement in statements:
            calling = uses_tool(statement.tree or statement.source, self._python_names)
            if calling:
                readings = dict.fromkeys((statement.original.strip(), statement.source))
                block.is_quoted |= bool([text for text in readings if self._quotes(text)])
            if block.dialect != "python":
                self._foreign.add(statement, block)
            if not block.is_quoted:  # what follows a quotation may need what that gives
                block.statements.append(statement)
                new = new or calling
        block.is_program = block.is_program or new
        return new

    def _quotes(self, text: str) -> bool:
        """Whether a call stands in a message of somebody else."""
        quoted = self._quotations is not None and self._quotations.contains(text)
        if quoted:
            self.quoted.append(text)
        return quoted

    def _attempted(self, block: DraftBlock) -> list[Diagnostic]:
        """Calls of tools that do not exist; code that calls none is documentation."""
        unknown = validate.unknown_calls(Program(tuple(block.statements)), self._toolset)
        is_attempt = block.dialect != "python" or any(one.near for one in unknown)
        if not (self._required or is_attempt):
            return []
        return [one.diagnostic for one in unknown]

    def _run(self, block: DraftBlock) -> Iterator[ToolCall]:
        program = block.added_to(self.program)
        if self._waits or program is None or program == self._ran:
            return
        if diagnostics := validate.check(program, self._toolset):
            record_run(program)
            self._reject(diagnostics, program)
            return
        outcome: Outcome | None = None
        try:
            outcome = self._driver.run(program, self._recorded, self._seed)
        except ProgramRejected as error:
            # A call that has left cannot be taken back; then the rest of the program is given up.
            calls = error.calls if self.calls else ()
            self._reject(error.diagnostics, program)
            self._output = error.stdout.rstrip("\n")
        except ReplayDiverged:
            # What it has called already stands; the rest would be another program's.
            calls = ()
            message = "run once more, the program makes other calls than it has made"
            hint = "write calls that depend on nothing but the results of other calls"
            self._reject([program.diagnostic(message, 1, hint=hint)], program)
        else:
            calls = outcome.calls
            self._ran = program
            self._waits = outcome.stopped
            self._output = outcome.output
        if not self.calls and (again := [call for call in calls if call in self._repeated_calls]):
            self._reject([_repeated(program, call) for call in again])
            self._suspect = block
            return
        if self.has_open_call and calls and not self._told(calls[0]):
            raise self._broken_off(["it went on as another call"])
        for call in calls:
            self._recorded.append(CallRecord(call))
            key = call_id(self._id, len(self.calls))
            self.calls.append(ToolCall(key, call.name, call.arguments, call.kind))
            metrics.TOOL_CALLS.inc()
            record_run(program, outcome, [call.id for call in self.calls])
            yield self.calls[-1]
        if not calls:
            record_run(program)

    @property
    def has_open_call(self) -> bool:
        """Whether a call has been told of and is not whole yet: no other may be in its place."""
        return self._early is not None and self._early.begun is not None and not self.calls

    def _told(self, call: Call) -> bool:
        return self._early is None or self._early.fits(call.name, call.arguments)

    def _broken_off(self, reasons: Sequence[str]) -> ModelFailed:
        message = "The model did not write to its end a call that was already being sent."
        return ModelFailed("\n".join([message, *reasons]), code="model_invalid")

    @property
    def has_repeated_calls(self) -> bool:
        """Whether nothing is wrong with the calls but that they have been made before."""
        return self._suspect is not None

    def release_calls(self) -> Iterator[ToolCall]:
        """The suspicious calls, since nothing better came of asking."""
        block = self._suspect
        if block is None:
            return
        self._suspect, self._given_up, self._repeated_calls, self._ran = None, None, (), None
        self.diagnostics.clear()
        yield from self._run(block)
        self.program = block.added_to(self.program) or self.program
        self.dialects.add(block.dialect)

    def _reject(self, diagnostics: Sequence[Diagnostic], program: Program | None = None) -> None:
        if self.has_open_call:
            raise self._broken_off([render(diagnostics)])
        self.diagnostics += [self._foreign.as_written(one, program) for one in diagnostics]
        self._given_up = self._given_up or program


def _repeated(program: Program, call: Call) -> Diagnostic:
    return program.diagnostic(
        f"{call.name} was called like this before, with the same result each time",
        1,
        hint="use that result, or do something else",
    )
