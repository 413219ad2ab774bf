"""The program in a reply: blocks -> statements -> calls. Knows nothing of prose or HTTP.

For each block: `start_block`, `feed` for its text, `end_block`, and `settle` with the words after it if the
block is still `is_unsettled`: `block_intent` decides whether it runs. After each new statement that calls a
tool (for tools that act: once the block is settled) the program runs from its start, and its new calls are
sent, until

* the program waits for results: later blocks are read for their statements, but nothing more runs;
* the program is rejected: ``diagnostics`` says why. Calls that were sent remain; without any the model is
  asked for a better block;
* the reply is truncated: ``truncated_block`` is the block to continue, and only complete statements count.

A block that is no call of a tool is returned as text. What was sent never changes: a run that makes other
calls than before is rejected (`ReplayDiverged`), and a call whose arguments were streamed early (`EarlyCall`)
but that does not become that call ends the answer with `ModelFailed`.
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from emulator import metrics
from emulator.answering.blanks import blank_variable, has_blank, is_blank
from emulator.answering.block_intent import IntentJudge
from emulator.answering.continuation import TAIL
from emulator.answering.draft_block import DraftBlock, ForeignStatements
from emulator.answering.early_call import EarlyCall
from emulator.answering.intent import Intent
from emulator.answering.open_text import SYNTAXES
from emulator.answering.quotations import Quotations
from emulator.answering.recording import record_block, record_run, record_shown
from emulator.answering.verdicts import FinalReply, UnusableReply, Verdict
from emulator.errors import ModelFailed
from emulator.events import (
    AnswerEvent,
    ProgramStarted,
    ToolCall,
    call_id,
    program_id,
)
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
from emulator.reading.diagnostics import Diagnostic, locate, render
from emulator.reading.readers import (
    READERS,
    Statement,
    Unreadable,
    used_tools,
)
from emulator.reading.tool_names import cached_tool_names
from emulator.tools.tool import Tool


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
        judge: IntentJudge | None = None,
        finds_long_calls: bool = False,
        stream_arguments: bool = False,
        seal: Callable[[SavedProgram, str], str] | None = None,
    ) -> None:
        """``finds_long_calls``: the first call is decided as soon as it has a long text, and with
        ``stream_arguments`` sent while the model is still writing it. ``seal`` makes the fingerprint of a
        program with this id, for a client that sees programs."""
        self._driver = driver
        self._toolset = driver.toolset
        self._required = required
        self._by_statement = by_statement and seal is None
        self._seal = seal
        self._program_id = ""
        """The id of the program that the client sees."""
        self._seed = seed
        self._repeated_calls = repeated_calls
        self._suspect: DraftBlock | None = None
        self._quotations = quotations
        self._judge = judge or IntentJudge(driver.toolset, required=required)
        self._doubtful: list[str] = []
        self._unsettled: DraftBlock | None = None
        self._finds_long_calls = finds_long_calls and seal is None
        self._stream_arguments = stream_arguments
        self._shown_after_calls = False
        self._early: EarlyCall | None = None
        self._block: DraftBlock | None = None
        self._recorded: list[CallRecord] = []
        self.truncated_block = ""
        self.quoted: list[str] = []
        self._id = secrets.token_hex(10)
        self.names = cached_tool_names(self._toolset.spellings, self._toolset.constructors)
        self._python_names = cached_tool_names(self._toolset.names)
        self.program = Program()
        self._ran: Program | None = None
        """The program of the last run: running it again changes nothing."""
        self.calls: list[ToolCall] = []
        self.dialects: set[str] = set()
        self.diagnostics: list[Diagnostic] = []
        self._waits = False
        self._last_dialect = "python"
        self._output = ""
        self._written = ""
        """The program with its comments; "" if it was merged from several blocks."""
        self._foreign = ForeignStatements()
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
        waits = self._waits or bool(self._program_id)
        waits = waits and self._block is None and self._unsettled is None
        return (waits and not self.expects_blocks) or bool(self.diagnostics)

    @property
    def expects_blocks(self) -> bool:
        """Whether the program waits after an element or JSON: models write parallel calls as several blocks,
        and the rest runs when the results arrive."""
        return self._waits and self._last_dialect != "python"

    @property
    def is_unsettled(self) -> bool:
        """Whether the last block waits for the words after it (`settle`)."""
        return self._unsettled is not None

    @property
    def verdict(self) -> Verdict | None:
        """None if the reply has no code."""
        if self.calls:
            return FinalReply()
        if self.diagnostics:
            return UnusableReply(
                "invalid", {"diagnostics": self.diagnostics, "output": self._output}
            )
        if self.truncated_block:
            return UnusableReply("cut", {"tail": self.truncated_block[-TAIL:]})
        if self.quoted and not self.has_code:
            return UnusableReply("quoted", {"quoted": self.quoted, "shown": True})
        if self._doubtful and not self.has_code:
            return UnusableReply("doubtful", {"quoted": self._doubtful})
        return UnusableReply("output", {"diagnostics": self._output}) if self.has_code else None

    def saved_program(self) -> SavedProgram | None:
        """The program to resume when its results arrive; None if it was not read to its end."""
        if self.truncated_block or self.quoted or self._shown_after_calls or not self.calls:
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
            is_shown=bool(self._program_id),
        )

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False, before: str = ""
    ) -> Iterator[AnswerEvent]:
        """Start a block; ``in_a_row`` if there is no prose between it and the previous block, ``before`` is
        the prose before it."""
        block = DraftBlock(dialect, READERS[dialect](self.names), [raw], in_a_row, before=before)
        self._block = block
        if self._finds_long_calls and dialect in SYNTAXES:
            # Only the first block: later calls may have to wait for its calls.
            self._finds_long_calls = False
            self._early = EarlyCall(
                dialect,
                self._toolset,
                call_id(self._id, 0),
                is_free=lambda tool, arguments: self._is_free(block, tool, arguments),
                quotes=lambda call: (
                    self._quotations is not None and self._quotations.begins_call(call)
                ),
            )
        return iter(())

    def _is_free(self, block: DraftBlock, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return True if a call can be sent before its block ends."""
        repeated = any(call.name == tool.name for call in self._repeated_calls)
        if repeated or self._judge.request.withholds(tool):
            return False
        block.has_blank |= any(is_blank(value, self._judge.request) for value in arguments.values())
        return self._judge.before(block) is Intent.MEANT

    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]:
        """Add text to the block; yields the calls that can be sent. Raises `ModelFailed` as `end_block`
        does."""
        block = self._opened()
        block.pieces.append(raw)
        block.text.append(text)
        if self._early is not None and not block.statements:
            for event in self._early.feed(text):
                block.is_committed = True
                if self._stream_arguments:
                    yield event
        if block.error is not None:
            return
        try:
            statements = block.reader.feed(text)
        except Unreadable as error:
            block.error = error
            return
        if self._take(block, statements) and self._by_statement and self._runs_early(block):
            block.has_run = True
            yield from self._run(block)

    def _runs_early(self, block: DraftBlock) -> bool:
        """Return True if calls of an unfinished block can be sent."""
        if not block.is_committed and self._judge.acts(block.tools):
            return False
        return block.is_committed or self._judge.before(block) is not Intent.SHOWN

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]:
        """End the block. Yields its calls, or the block as text if it is not part of a program.

        With ``cut_off`` only complete statements count, and ``truncated_block`` is set. Raises
        `ModelFailed` if a call that was streamed early did not become one.
        """
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        self._last_dialect = block.dialect
        self._read_out(block, cut_off=cut_off)
        record_block(
            block.dialect, block.pieces, block.statements, block.error, quoted=block.is_quoted
        )
        self._unsettled = block
        if cut_off or block.is_committed or block.is_quoted or not self._judge.acts(block.tools):
            yield from self.settle("", cut_off=cut_off)

    def settle(self, after: str, *, cut_off: bool = False) -> Iterator[AnswerEvent | str]:
        """Decide what the last block is, given the words after it; yields as `end_block` does."""
        block, self._unsettled = self._unsettled, None
        if block is None:
            return
        intent = Intent.MEANT if block.is_quoted else self._judge.judge(block, after)
        doubtful = intent is Intent.DOUBTFUL and self._judge.acts(block.tools)
        if (intent is Intent.SHOWN or doubtful) and (block.is_program or block.error):
            self.truncated_block = ""
            record_shown(self._judge.rule(block))
            self._judge.remember_shown(block)
            self._shown_after_calls |= block.has_run
            if doubtful:
                self._doubtful.append(block.inner.strip())
            yield block.as_python if self._judge.constrained else block.raw
            return
        if block.error and not cut_off and (block.is_program or block.means_a_call(self.names)):
            self._reject(block.error.diagnostics, block.added_to(self.program))
        elif block.is_program:
            yield from self._run(block)
            if not self.diagnostics:
                if (program := block.added_to(self.program)) is not None:
                    self._written = self._as_written(block, program)
                    self.program = program
                    record_run(program)
                self.dialects.add(block.dialect)
        elif self.truncated_block:
            pass  # neither a call nor prose
        elif not block.is_quoted and intent is Intent.MEANT and (unknown := self._attempted(block)):
            self._reject(unknown)
        elif not self.has_open_call:
            self._judge.remember_shown(block)
            yield block.raw
        if self.has_open_call and not self.truncated_block:
            raise self._broken_off(["it did not become a call"])

    def _read_out(self, block: DraftBlock, *, cut_off: bool) -> None:
        if cut_off:
            # The last statement may look complete and still be truncated.
            if block.is_program or block.means_a_call(self.names):
                self.truncated_block = block.raw
        elif block.error is None:
            try:
                self._take(block, block.reader.close())
            except Unreadable as error:
                block.error = error
            if block.is_program and block.dialect != "python" and self._quotes_block(block):
                block.is_quoted, block.is_program = True, False

    def finish(self) -> Iterator[AnswerEvent]:
        """The upstream's connection is closed."""
        if (block := self._block) is not None:  # the rest of the reply was skipped
            record_block(block.dialect, block.pieces, block.statements, block.error)
        return iter(())

    def _opened(self) -> DraftBlock:
        assert self._block is not None, "the splitter starts a block before it feeds it"
        return self._block

    def _take(self, block: DraftBlock, statements: list[Statement]) -> bool:
        """Add statements to the block. Returns True if one of them calls a tool."""
        new = False
        for statement in statements:
            code = statement.tree or statement.source
            tools = set(used_tools(code, self._python_names))
            calling = bool(tools)
            if name := blank_variable(statement.source, self._judge.request):
                block.blank_variables.add(name)
            if calling:
                block.tools |= tools
                block.has_blank |= self._has_blank(block, code)
                block.is_quoted |= self._quotes(statement)
            if block.dialect != "python":
                self._foreign.add(statement, block)
            if not block.is_quoted:  # statements after a quoted call may need its result
                block.statements.append(statement)
                new = new or calling
        block.is_program = block.is_program or new
        return new

    def _has_blank(self, block: DraftBlock, code: str | ast.AST) -> bool:
        names, dots = self._python_names, bool(block.before.strip())
        request, variables = self._judge.request, block.blank_variables
        return has_blank(code, names, request, dots=dots, variables=variables)

    def _quotes(self, statement: Statement) -> bool:
        """Return True if a statement makes a call that is a quotation, and remember it."""
        source, written = statement.source, statement.original.strip()
        quoted = self._quotations is not None and self._quotations.contains_call(source, written)
        if quoted:
            self.quoted.append(source)
        return quoted

    def _quotes_block(self, block: DraftBlock) -> bool:
        text = block.raw if block.dialect == "command" else block.inner
        sources = [statement.source for statement in block.statements]
        quoted = self._quotations is not None and self._quotations.contains_block(text, sources)
        if quoted:
            self.quoted += [text, *sources]
        return quoted

    def _attempted(self, block: DraftBlock) -> list[Diagnostic]:
        """Diagnostics for calls of unknown tools, if the block is meant as a call and not as
        documentation."""
        unknown = validate.unknown_calls(Program(tuple(block.statements)), self._toolset)
        own = block.own_names
        is_script = own is not None and (own.has_definitions or own.is_script)
        is_attempt = block.dialect != "python" or (
            any(one.near for one in unknown) and not (is_script or block.is_session)
        )
        if not (self._required or is_attempt):
            return []
        return [one.diagnostic for one in unknown]

    def _run(self, block: DraftBlock) -> Iterator[AnswerEvent]:
        program = block.added_to(self.program)
        if self._waits or program is None or program == self._ran:
            return
        if diagnostics := self._wrong_callers(block):
            self._reject(diagnostics)
            return
        if diagnostics := validate.check(program, self._toolset):
            record_run(program)
            self._reject(diagnostics, program)
            return
        outcome: Outcome | None = None
        try:
            outcome = self._driver.run(program, self._recorded, self._seed)
        except ProgramRejected as error:
            # If calls were sent already, no more are sent, and the rest of the program is dropped.
            calls = error.calls if self.calls else ()
            self._reject(error.diagnostics, program)
            self._output = error.stdout.rstrip("\n")
        except ReplayDiverged:
            # The calls that were sent remain; the rest would belong to a different program.
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
        if self.has_open_call and calls and not self._matches_early_call(calls[0]):
            raise self._broken_off(["it became a different call"])
        if calls and not self.calls and self._seal and self._starts_program(block, calls[0]):
            yield self._start_program(program, block, self._seal)
        for call in calls:
            self._recorded.append(CallRecord(call))
            key = call_id(self._id, len(self.calls))
            caller = self._program_id
            self.calls.append(ToolCall(key, call.name, call.arguments, call.kind, caller))
            metrics.TOOL_CALLS.inc()
            record_run(program, outcome, [call.id for call in self.calls])
            yield self.calls[-1]
        if not calls:
            record_run(program)

    def _starts_program(self, block: DraftBlock, call: Call) -> bool:
        """Return True if a first call is a program's, not the model's own."""
        tool = self._toolset.find(call.name)
        return block.dialect == "python" and tool is not None and not tool.is_direct_only

    def _start_program(
        self, program: Program, block: DraftBlock, seal: Callable[[SavedProgram, str], str]
    ) -> ProgramStarted:
        self._program_id = program_id(call_id(self._id, 0))
        written = self._as_written(block, program)
        saved = SavedProgram(program, (), (), self._seed, original_source=written, is_shown=True)
        return ProgramStarted(self._program_id, saved.code, seal(saved, self._program_id))

    def _as_written(self, block: DraftBlock, program: Program) -> str:
        """The program with its comments; "" if it was merged from several blocks."""
        whole = len(program.statements) == len(block.statements)
        return block.inner if whole and block.dialect == "python" else ""

    def _wrong_callers(self, block: DraftBlock) -> list[Diagnostic]:
        """Diagnostics for direct calls of tools that only programs may call."""
        if block.dialect == "python" and not (self.calls and not self._program_id):
            return []
        tools = (self._toolset.find(name) for name in sorted(block.tools))
        names = [tool.python_name for tool in tools if tool is not None and tool.is_program_only]
        hint = "write a Python block that calls it"
        faults = (
            Diagnostic(f"{name} is called only by programs", 1, 0, "", hint) for name in names
        )
        return [locate(fault, block.inner, 1) for fault in faults]

    @property
    def has_open_call(self) -> bool:
        """Whether a call was sent in part. No other call may take its place."""
        started = self._early is not None and self._early.started is not None
        return started and self._stream_arguments and not self.calls

    def _matches_early_call(self, call: Call) -> bool:
        return self._early is None or self._early.matches(call.name, call.arguments)

    def _broken_off(self, reasons: Sequence[str]) -> ModelFailed:
        message = "The model did not complete a call whose arguments were already being sent."
        return ModelFailed("\n".join([message, *reasons]), code="model_invalid")

    @property
    def has_repeated_calls(self) -> bool:
        """Whether the only problem of the calls is that they repeat earlier ones."""
        return self._suspect is not None

    def release_calls(self) -> Iterator[AnswerEvent]:
        """Send the repeated calls, because the model gave no better reply."""
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
