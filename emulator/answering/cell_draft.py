"""The cell of a reply: a Python block that the code interpreter runs.

Replaces `ProgramDraft` if a request has an interpreter. The first complete Python block is the cell and ends
the reply; it runs after the upstream's connection is closed. Function calls in other syntaxes go to the
`ProgramDraft`. Knows nothing of prose or HTTP.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence

from emulator import traces
from emulator.answering.draft_block import DraftBlock
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.judge import Decision, Judge, Outcome, Place
from emulator.answering.program_draft import HeldText, ProgramDraft
from emulator.answering.quotations import Quotations, quoted_parts
from emulator.answering.recording import record_block, record_cell, record_shown
from emulator.answering.verdicts import CellResult, FinalReply, UnusableReply, Verdict
from emulator.events import (
    AnswerEvent,
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeOutput,
    CodeStarted,
    Image,
    Logs,
    RunStatus,
    ToolCall,
    new_id,
)
from emulator.interpreter.cell import CellWaiting
from emulator.interpreter.execution import Execution
from emulator.interpreter.interpreter import Progress
from emulator.interpreter.pending_approval import PendingApproval
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import Program
from emulator.programs.saved import SavedProgram
from emulator.reading.openings import FENCES
from emulator.reading.readers import READERS, Statement, Unreadable, used_tools
from emulator.reading.tool_names import cached_tool_names
from emulator.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.parsing import parse

NAMES = ("code_interpreter", "python")
"""Names under which models call a code interpreter when they write a call instead of a block."""

PREFIX = "ci_"
"""The prefix of cell ids."""
_LABELS = frozenset(label for label, dialect in FENCES.items() if dialect == "python")


class CellDraft:
    """See `CodeDraft`. ``draft`` reads all other blocks."""

    def __init__(
        self,
        draft: ProgramDraft,
        judge: Judge,
        session: InterpreterSession,
        toolset: Toolset,
        quotations: Quotations,
        order: Order,
    ) -> None:
        self._draft = draft
        self._judge = judge
        self._order = order
        self._quotations = quotations
        self._quoted: list[str] = []
        self._doubtful: tuple[DraftBlock, str] | None = None
        """The block about which the model is asked, and its code."""
        self._unsettled: tuple[DraftBlock, str] | None = None
        """A block about which the rest of the reply decides, and its code."""
        self._session = session
        self._toolset = toolset
        self._block: DraftBlock | None = None
        self._id = ""
        """The id of the cell, once its code is sent."""
        self._code: str | None = None
        self._cell_verdict: Verdict | None = None
        self._calls: list[ToolCall] = []
        own = tuple((name, name) for name in NAMES)
        self.names = cached_tool_names((*own, *toolset.spellings), toolset.constructors)
        self.offered_names = draft.offered_names
        self.has_code = False

    @property
    def is_done(self) -> bool:
        return (self.has_code and self._block is None) or self._draft.is_done

    @property
    def expects_blocks(self) -> bool:
        return self._draft.expects_blocks

    @property
    def is_unsettled(self) -> bool:
        return self._unsettled is not None or self._draft.is_unsettled

    @property
    def uses_label(self) -> bool:
        return self._draft.uses_label

    def waits_with(self, dialect: str, raw: str) -> bool:
        return self._unsettled is None and self._draft.waits_with(dialect, raw)

    def settle(self, place: Place) -> Iterator[AnswerEvent | str]:
        if self._unsettled is None:
            yield from self._draft.settle(place)
            return
        (block, code), self._unsettled = self._unsettled, None
        yield from self._follow(self._judge.decide_cell(block, place), block, code)

    def run_doubtful(self) -> Iterator[AnswerEvent]:
        if self._doubtful is None:
            yield from self._draft.run_doubtful()
            return
        (block, code), self._doubtful = self._doubtful, None
        yield from self._accept(block, code)

    @property
    def has_open_call(self) -> bool:
        return False

    @property
    def truncated_block(self) -> str:
        return self._draft.truncated_block

    @property
    def verdict(self) -> Verdict | None:
        if self._cell_verdict is None and self._quoted and not self.calls:
            return UnusableReply("quoted", {"quoted": self._quoted})
        if self._cell_verdict is None and self._doubtful and not self.calls:
            return UnusableReply("doubtful", {"quoted": [self._doubtful[1].strip()]})
        return self._cell_verdict or self._draft.verdict

    @property
    def calls(self) -> list[ToolCall]:
        return [*self._draft.calls, *self._calls]

    @property
    def dialects(self) -> set[str]:
        return self._draft.dialects

    @property
    def has_repeated_calls(self) -> bool:
        return self._draft.has_repeated_calls

    def release_calls(self) -> Iterator[AnswerEvent]:
        return self._draft.release_calls()

    def saved_program(self) -> SavedProgram | None:
        """A cell is not stored: it waits in its kernel."""
        return self._draft.saved_program()

    @property
    def code(self) -> str:
        """The cell, or ""."""
        return self._code or ""

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        block = DraftBlock(dialect, READERS[dialect](self.names), [raw], in_a_row)
        self._block = block
        self._draft.note_label(block)
        if self._is_python(block) and self._judge.decides_cells_early(block):
            self._id = new_id(PREFIX)
            self.has_code = True
            yield CodeStarted(self._id, self._session.container.id)

    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]:
        block = self._opened()
        block.text.append(text)
        block.pieces.append(raw)
        if self._id:
            yield CodeDelta(text)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]:
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        text = block.inner
        code = text if self._is_python(block) else self._as_cell(block, text)
        directly = code is not None and self._calls_directly(code)
        quoted = code is not None and not cut_off and (self._quotes(text) or self._quotes(code))
        if self._id and (cut_off or quoted or directly):
            yield CodeFinished("incomplete")
            self._id, self.has_code = "", cut_off
            if not directly:
                return
        if cut_off or code is None or directly:
            yield from self._pass_on(block, text, cut_off=cut_off)
        elif quoted:
            yield block.as_shown
        else:
            block.tools |= self._tools(code)
            yield from self._follow(self._judge.decide_cell(block), block, code)

    def _follow(
        self, decision: Decision, block: DraftBlock, code: str
    ) -> Iterator[AnswerEvent | str]:
        """Do what was decided about a block."""
        match decision.outcome:
            case Outcome.OPEN:
                self._unsettled = block, code
            case Outcome.RUNS:
                yield from self._accept(block, code)
            case Outcome.SHOWN:
                record_shown(decision.row)
                yield block.as_shown
            case Outcome.ASKED:
                record_shown(decision.row)
                self._doubtful = block, code
                yield HeldText(block.as_shown)

    def _accept(self, block: DraftBlock, code: str) -> Iterator[AnswerEvent]:
        """The block is the cell."""
        self._code, self.has_code = code, True
        record_block(block.dialect, block.pieces, ())
        if not self._id:
            self._id = new_id(PREFIX)
            yield CodeStarted(self._id, self._session.container.id)
            yield CodeDelta(code)

    def _is_python(self, block: DraftBlock) -> bool:
        """Return True if the label of the block says Python."""
        return block.dialect == "python" and block.label in _LABELS

    def _tools(self, code: str) -> set[str]:
        """The Python names of the offered functions that the code calls."""
        try:
            return set(used_tools(code, self._draft.names))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return set()

    def _pass_on(
        self, block: DraftBlock, text: str, *, cut_off: bool = False
    ) -> Iterator[AnswerEvent | str]:
        """The block is no cell."""
        yield from self._draft.start_block(block.dialect, block.raw, in_a_row=block.in_a_row)
        yield from self._draft.feed(text, "")
        yield from self._draft.end_block("", cut_off=cut_off)

    def _calls_directly(self, text: str) -> bool:
        """Return True if a block consists only of calls that code cannot make."""
        direct = {tool.python_name for tool in self._toolset.tools if tool.is_direct_only}
        try:
            program = Program((Statement(text, 1),))
            return bool(direct) and plain_calls(program, direct, with_output=True) is not None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def read_object(self, prose: str) -> Iterator[AnswerEvent]:
        return self._draft.read_object(prose)

    def finish(self) -> Iterator[AnswerEvent]:
        """Run the cell."""
        yield from self._draft.finish()
        if self._code is None:
            return
        record_cell(self._code)
        yield CodeComplete(self._code)
        key = self._id.removeprefix(PREFIX)
        run = self._session.interpreter.run(
            self._session.container, self._code, self._toolset, key, self._order
        )
        events = run_events(run, self._id)
        with traces.record_time("sandbox cell"):
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    self._cell_verdict = end.value
                    return
                if isinstance(event, ToolCall):
                    self._calls.append(event)
                yield event

    def _quotes(self, code: str) -> bool:
        """Return True if parts of a cell are quotations, and remember them."""
        parts = quoted_parts(code, self._quotations, self.names)
        self._quoted += parts
        return bool(parts)

    def _opened(self) -> DraftBlock:
        assert self._block is not None, "the splitter starts a block before it feeds it"
        return self._block

    def _as_cell(self, block: DraftBlock, text: str) -> str | None:
        """The code of a block without a Python label, if it is a cell."""
        try:
            reader = READERS[block.dialect](self.names)
            statements = [*reader.feed(text), *reader.close()]
        except Unreadable:
            return None
        wrapped = _wrapped(statements)
        if wrapped is not None:
            return wrapped
        # Without a label, text of any kind may happen to be valid Python.
        return text if block.dialect == "python" and _has_effect(text) else None


def run_events(progress: Iterator[Progress], cell: str) -> Generator[AnswerEvent, None, Verdict]:
    """Yield the events of a running cell, which calls under the id ``cell``; returns the verdict."""
    for step in progress:
        match step:
            case Logs() | Image():
                yield CodeOutput(step)
            case PendingApproval():
                pass  # the client decides at `routes/executions.py`
            case CellWaiting(calls, outputs):
                yield CodeFinished("incomplete", outputs, waits=True)
                for key, call in calls.items():
                    yield ToolCall(key, call.name, call.arguments, call.kind, cell)
                return FinalReply()
            case Execution():
                status: RunStatus = "completed" if step.status == "completed" else "failed"
                text = step.model_text()
                yield CodeFinished(status, step.outputs, step.files, text)
                return CellResult(text, failed=step.status == "failed")
    # Two requests brought the same result at the same time: the other one has resumed the cell.
    yield CodeFinished("incomplete")
    return CellResult("(another request resumed this block)", failed=False)


def _wrapped(statements: Sequence[Statement]) -> str | None:
    """The code in ``code_interpreter(code="...")``: some models write a cell as a call."""
    for statement in statements:
        tree = parse(statement.source).body
        call = tree[0].value if tree and isinstance(tree[0], ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in NAMES:
            for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
                for part in value.values if isinstance(value, ast.Dict) else [value]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        return part.value
    return None


def _has_effect(text: str) -> bool:
    """Return True if the text is Python that calls, assigns or imports."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    effects = ast.Call | ast.Assign | ast.AugAssign | ast.Import | ast.ImportFrom
    return any(isinstance(node, effects) for node in ast.walk(tree))
