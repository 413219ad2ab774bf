"""The cell of a reply, as it grows: a Python block that the code interpreter is to run.

Takes the place of `ProgramDraft` where a request has an interpreter. The first whole Python block is the
cell, and ends the reply; it runs once the upstream connection is closed. Calls of functions that a model
writes in another way than Python are a `ProgramDraft`'s to read. Knows nothing of prose or HTTP.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from emulator import traces
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.quotations import Quotations
from emulator.answering.quoted_cells import quoted_parts
from emulator.answering.recording import record_block, record_cell
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
    ToolCall,
    new_id,
)
from emulator.interpreter.cell import CellWaiting
from emulator.interpreter.execution import Execution
from emulator.interpreter.interpreter import Progress
from emulator.interpreter.pending_cell import PendingCell
from emulator.programs.saved import SavedProgram
from emulator.reading.openings import FENCES
from emulator.reading.readers import READERS, Statement, Unreadable
from emulator.reading.tool_names import cached_tool_names
from emulator.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.parsing import parse

NAMES = ("code_interpreter", "python")
"""How models that know a code interpreter as a tool call it, where they write calls instead of blocks."""

PREFIX = "ci_"
"""Of the ids of cells."""
_LABELS = frozenset(label for label, dialect in FENCES.items() if dialect == "python")


@dataclass
class _Block:
    dialect: str
    pieces: list[str]
    """As it was written, its fence included."""
    in_a_row: bool
    id: str = ""
    """Of the cell, where the fence says that it is Python: then it is told as it comes."""
    text: list[str] = field(default_factory=list)


class CellDraft:
    """See `CodeDraft`. ``draft`` reads what is no Python block."""

    def __init__(
        self,
        draft: ProgramDraft,
        session: InterpreterSession,
        toolset: Toolset,
        quotations: Quotations | None = None,
        order: Order = "auto",
    ) -> None:
        self._draft = draft
        self._order = order
        self._quotations = quotations
        self._quoted: list[str] = []
        self._session = session
        self._toolset = toolset
        self._block: _Block | None = None
        self._id = ""
        self._code: str | None = None
        self._cell_verdict: Verdict | None = None
        self._calls: list[ToolCall] = []
        own = tuple((name, name) for name in NAMES)
        self.names = cached_tool_names((*own, *toolset.spellings))
        self.offered_names = draft.offered_names
        self.has_code = False

    @property
    def is_done(self) -> bool:
        return (self.has_code and self._block is None) or self._draft.is_done

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

    def release_calls(self) -> Iterator[ToolCall]:
        return self._draft.release_calls()

    def saved_program(self) -> SavedProgram | None:
        """A cell is kept by its kernel alone."""
        return self._draft.saved_program()

    @property
    def code(self) -> str:
        """The cell, "" where there is none."""
        return self._code or ""

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        self._block = _Block(dialect, [raw], in_a_row)
        if dialect == "python" and raw.strip(" \t\n`~").lower() in _LABELS:
            self._block.id = self._id = new_id(PREFIX)
            self.has_code = True
            yield CodeStarted(self._id, self._session.container.id)

    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]:
        block = self._opened()
        block.text.append(text)
        block.pieces.append(raw)
        if block.id:
            yield CodeDelta(text)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]:
        block = self._opened()
        block.pieces.append(raw)
        self._block = None
        text = "".join(block.text)
        if block.id and cut_off:
            yield CodeFinished("incomplete")
        elif block.id and self._quotes(text):
            self.has_code = False
            yield CodeFinished("incomplete")
        elif block.id:
            self._code = text
            record_block(block.dialect, block.pieces, ())
        elif cut_off or (code := self._meant(block, text)) is None:
            yield from self._draft.start_block(
                block.dialect, "".join(block.pieces), in_a_row=block.in_a_row
            )
            yield from self._draft.feed(text, "")
            yield from self._draft.end_block("", cut_off=cut_off)
        elif self._quotes(text) or self._quotes(code):
            yield "".join(block.pieces)
        else:
            self._code, self._id, self.has_code = code, new_id(PREFIX), True
            record_block(block.dialect, block.pieces, ())
            yield CodeStarted(self._id, self._session.container.id)
            yield CodeDelta(code)

    def finish(self) -> Iterator[AnswerEvent]:
        """Run the cell, if there is one."""
        yield from self._draft.finish()
        if self._code is None:
            return
        record_cell(self._code)
        yield CodeComplete(self._code)
        key = self._id.removeprefix(PREFIX)
        run = self._session.interpreter.run(
            self._session.container, self._code, self._toolset, key, self._order
        )
        events = run_events(run)
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
        """Whether the code of a cell is somebody else's."""
        found = quoted_parts(code, self._quotations, self.names) if self._quotations else []
        self._quoted += found
        return bool(found)

    def _opened(self) -> _Block:
        assert self._block is not None, "the splitter opens a block before it goes on"
        return self._block

    def _meant(self, block: _Block, text: str) -> str | None:
        """The code of a block that does not say that it is Python, if that is what it is."""
        try:
            reader = READERS[block.dialect](self.names)
            statements = [*reader.feed(text), *reader.close()]
        except Unreadable:
            return None
        wrapped = _wrapped(statements)
        if wrapped is not None:
            return wrapped
        # Without a fence, or with a bare one: text of any kind may happen to be Python.
        return text if block.dialect == "python" and _does_something(text) else None


def run_events(progress: Iterator[Progress]) -> Generator[AnswerEvent, None, Verdict]:
    """A cell's run as events of the answer; returns the verdict."""
    for step in progress:
        match step:
            case Logs() | Image():
                yield CodeOutput(step)
            case PendingCell():
                pass  # it is asked about elsewhere: `routes/executions.py`
            case CellWaiting(calls, outputs):
                yield CodeFinished("incomplete", outputs)
                for key, call in calls.items():
                    yield ToolCall(key, call.name, call.arguments, call.kind)
                return FinalReply()
            case Execution():
                done = step.status == "completed"
                yield CodeFinished("completed" if done else "failed", step.outputs, step.files)
                return CellResult(step.model_text(), failed=step.status == "failed")
    # The same result came twice at the same time: the other request has taken the cell on.
    yield CodeFinished("incomplete")
    return CellResult("(the block was run on by another request)", failed=False)


def _wrapped(statements: Sequence[Statement]) -> str | None:
    """The code in ``code_interpreter(code="...")``, which is how some models write a cell."""
    for statement in statements:
        tree = parse(statement.source).body
        call = tree[0].value if tree and isinstance(tree[0], ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in NAMES:
            passed = [*call.args, *(keyword.value for keyword in call.keywords)]
            for value in passed:
                inner = value.values if isinstance(value, ast.Dict) else [value]
                for one in inner:
                    if isinstance(one, ast.Constant) and isinstance(one.value, str):
                        return one.value
    return None


def _does_something(text: str) -> bool:
    """Whether text is Python that calls, assigns or imports: most other text is not."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    doing = ast.Call | ast.Assign | ast.AugAssign | ast.Import | ast.ImportFrom
    return any(isinstance(node, doing) for node in ast.walk(tree))
