"""The cell of a reply: a Python block that the code interpreter runs.

The first block that runs is the cell and ends the reply; it runs after the upstream's connection is closed.
Function calls in other syntaxes belong to the `ReplyProgram`. Knows nothing of prose or HTTP.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Sequence

from emulator import traces
from emulator.core.events import (
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
from emulator.interpreter.interpreter_session import InterpreterSession
from emulator.interpreter.pending_approval import PendingApproval
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import Program
from emulator.reading.openings import FENCES, MARK
from emulator.reading.readers import READERS, Statement, Unreadable, used_tools
from emulator.reading.tool_names import cached_tool_names
from emulator.reply.draft_block import DraftBlock
from emulator.reply.quotations import Quotations
from emulator.reply.recording import record_block, record_cell
from emulator.reply.verdicts import CellResult, FinalReply, Verdict
from emulator.settings.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.parsing import parse

NAMES = ("code_interpreter", "code_execution", "python")
"""Names under which models call a code interpreter when they write a call instead of a block."""

PREFIX = "ci_"
"""The prefix of cell ids."""
_LABELS = frozenset(label for label, dialect in FENCES.items() if dialect == "python") | {MARK}


class ReplyCell:
    """`start`, `feed` and `abandon` send the code while it is written; `accept` settles it, `run` runs it."""

    def __init__(
        self, session: InterpreterSession, toolset: Toolset, quotations: Quotations, order: Order
    ) -> None:
        self._session = session
        self._toolset = toolset
        self._quotations = quotations
        self._order = order
        self._id = ""
        """The id of the cell, once its code is sent."""
        self._pieces: list[str] = []
        """The code of the accepted blocks."""
        self.verdict: Verdict | None = None
        """None until a cell has run."""
        self.calls: list[ToolCall] = []
        self.has_code = False
        """Whether a cell has started."""
        own = tuple((name, name) for name in NAMES)
        self.names = cached_tool_names(
            (*own, *toolset.spellings), toolset.constructors, toolset.readers
        )

    @property
    def code(self) -> str:
        return "\n".join(self._pieces)

    @property
    def is_started(self) -> bool:
        """Whether the code is sent while it is written."""
        return bool(self._id)

    def start(self) -> Iterator[AnswerEvent]:
        self._id = new_id(PREFIX)
        self.has_code = True
        yield CodeStarted(self._id, self._session.container.id)

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        if self._id:
            yield CodeDelta(text)

    def abandon(self, *, has_code: bool) -> Iterator[AnswerEvent]:
        """The block that is being sent is no cell, or not a whole one; ``has_code`` if it ends the reply."""
        if self._id:
            yield CodeFinished("incomplete")
            self._id, self.has_code = "", has_code

    def accept(self, block: DraftBlock) -> Iterator[AnswerEvent]:
        """The block is the cell, or its continuation."""
        assert block.cell is not None
        record_block(block.dialect, block.pieces, ())
        was_sent = self.is_started and not self._pieces
        if not self.is_started:
            yield from self.start()
        if not was_sent:
            yield CodeDelta(f"\n{block.cell}" if self._pieces else block.cell)
        self._pieces.append(block.cell)

    def run(self) -> Iterator[AnswerEvent]:
        """Run the cell, if there is one."""
        if not self._pieces:
            return
        record_cell(self.code)
        yield CodeComplete(self.code)
        key = self._id.removeprefix(PREFIX)
        run = self._session.interpreter.run(
            self._session.container, self.code, self._toolset, key, self._order
        )
        events = run_events(run, self._id)
        with traces.record_time("sandbox cell"):
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    self.verdict = end.value
                    return
                if isinstance(event, ToolCall):
                    self.calls.append(event)
                yield event

    # Which blocks are cells

    def is_python(self, block: DraftBlock) -> bool:
        """Return True if the label of the block says Python."""
        return block.dialect == "python" and block.label in _LABELS

    def code_of(self, block: DraftBlock) -> str | None:
        """The code of a complete block, if it is a cell and not only calls that code cannot make."""
        text = block.inner
        code = text if self.is_python(block) else self._unlabelled_code(block, text)
        return None if code is None or self._calls_directly(code) else code

    def mark(self, block: DraftBlock, code: str) -> None:
        """Note in the block what decides whether it runs: the tools that it calls, and quotations."""
        block.cell = code
        block.tools |= self._tools(code)
        quotes = self._quotations.quotes_cell
        block.is_quoted |= any(quotes(text, self.names) for text in {block.inner, code})

    def _tools(self, code: str) -> set[str]:
        """The Python names of the offered functions that the code calls."""
        names = cached_tool_names(self._toolset.spellings, self._toolset.constructors)
        try:
            return set(used_tools(code, names))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return set()

    def _calls_directly(self, text: str) -> bool:
        """Return True if a block consists only of calls that code cannot make."""
        direct = {tool.python_name for tool in self._toolset.tools if tool.is_direct_only}
        try:
            program = Program((Statement(text, 1),))
            return bool(direct) and plain_calls(program, direct, with_output=True) is not None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def _unlabelled_code(self, block: DraftBlock, text: str) -> str | None:
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
