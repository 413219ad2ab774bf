"""Read one reply of the model: tell what can be told at once, run the program in it, judge the rest.

`Turn.feed` and `Turn.close` are sans-IO; `pipeline.py` brings the chunks and acts on the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator import metrics, validate
from emulator.diagnostics import Diagnostic
from emulator.extract import BlockDelta, BlockEnd, BlockStart, Event, Reasoning, Splitter, Text
from emulator.formats import AnswerFormat, Misformed
from emulator.programs import Driver, Program, ProgramRejected, Recorded
from emulator.prompt import Choice
from emulator.readers import READERS, Reader, Statement, Unreadable, calls_tool, mentions_tool
from emulator.respond import AnswerEvent, ContentDelta, ReasoningDelta, ToolCall, new_id
from emulator.resume import Saved
from emulator.stops import StopFilter

# Prose behind a program is read on only for a further program in it, and only so far.
MAX_AFTERWORD = 300
_INVENTED = re.compile(
    r"\s*(?:[*#>`_\s]*)(?:output|results?|returns?|response)\b|\s*```(?!py)", re.IGNORECASE
)


@dataclass(frozen=True)
class Answered:
    """The turn is the answer: calls, or prose."""


@dataclass(frozen=True)
class Refused:
    """The turn is of no use; ``kind`` and ``facts`` say what to ask for (prompts/repair.jinja)."""

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Block:
    dialect: str
    reader: Reader
    raw: str
    statements: list[Statement] = field(default_factory=list)
    error: Unreadable | None = None
    is_program: bool = False


class Turn:
    """One reply. After `close`, ``verdict`` says what came of it; ``done`` says when to stop reading."""

    def __init__(
        self,
        driver: Driver,
        choice: Choice,
        *,
        seed: int = 0,
        by_statement: bool,
        hold_prose: bool,
        answer_format: AnswerFormat | None = None,
        stops: StopFilter | None = None,
        reasoning_open: bool = False,
    ) -> None:
        self._driver = driver
        self._toolset = driver.toolset
        self._choice = choice
        self._seed = seed
        self._by_statement = by_statement
        # Under `required` prose is no answer; in a repaired turn it is one only if no call follows; and
        # one that must have a form is told when it has.
        self._hold_prose = hold_prose or choice.required or answer_format is not None
        self._format = answer_format
        self._stops = stops or StopFilter(None)
        self._written = {
            spelling: tool.python_name
            for tool in self._toolset.tools
            for spelling in (tool.name, tool.python_name)
        }
        self._splitter = Splitter(self._written, reasoning_open=reasoning_open)
        self._block: _Block | None = None
        self._blocks: list[tuple[str, ...]] = []
        self._program = Program()
        self._calls: list[ToolCall] = []
        self._recorded: list[Recorded] = []
        self._stopped = False
        self._output = ""
        self._space = ""
        self._held: list[str] = []
        self._said = False
        self._afterword = ""
        self._misformed = ""
        self._rejected: list[Diagnostic] = []
        self._cut_off = False
        self.done = False
        self.text = ""

    def feed(self, content: str, reasoning: str = "") -> Iterator[AnswerEvent]:
        if reasoning:
            yield ReasoningDelta(reasoning)
        self.text += content
        for event in self._splitter.feed(content):
            yield from self._event(event)
            if self.done:
                return

    def close(self, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        """The reply has ended; ``cut_off`` when a token limit ended it."""
        self._cut_off = cut_off
        if not self.done:
            for event in self._splitter.close():
                yield from self._event(event, cut_off=cut_off)
        self.done = True
        if self._calls or self._rejected or self._program.statements or self._choice.required:
            return
        answer = "".join(self._held)
        if answer and self._format is not None and not cut_off:
            try:
                answer = self._format.read(answer)
            except Misformed as error:
                self._misformed = str(error)
                return
        if answer := answer + self._stops.close():
            self._said = True
            yield ContentDelta(answer)

    @property
    def called(self) -> bool:
        return bool(self._calls)

    @property
    def saved(self) -> Saved | None:
        """The program, to be gone on with when results come; None if it was not read to its end."""
        if self._rejected or self._cut_off:
            return None
        ids = tuple(call.id for call in self._calls)
        return Saved(self._program, tuple(self._recorded), ids, self._seed)

    @property
    def verdict(self) -> Answered | Refused:
        if self._calls:
            return Answered()
        if self._rejected:
            return Refused("invalid", {"diagnostics": self._rejected})
        if self._program.statements:
            return Refused("output", {"diagnostics": self._output})
        if self._misformed:
            return Refused("format", {"diagnostics": self._misformed})
        if self._choice.required:
            return Refused("required", {"names": self._names()})
        return Answered() if self._said else Refused("empty", {"names": self._names()})

    def _names(self) -> list[str]:
        return [self._choice.name] if self._choice.name else sorted(self._toolset.names)

    # Events

    def _event(self, event: Event, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        match event:
            case Reasoning(text):
                if text:  # a bare tag says nothing
                    yield ReasoningDelta(text)
            case Text(text):
                yield from self._prose(text)
            case BlockStart(dialect, raw):
                self._block = _Block(dialect, READERS[dialect](self._written), raw)
            case BlockDelta(text, raw):
                block = self._opened()
                block.raw += raw
                if block.error is None:
                    yield from self._read(block, text)
            case BlockEnd(raw, closed):
                block = self._opened()
                block.raw += raw
                self._block = None
                yield from self._ended(block, cut_off=cut_off and not closed)

    def _opened(self) -> _Block:
        assert self._block is not None, "the splitter opens a block before it goes on"
        return self._block

    def _prose(self, text: str) -> Iterator[AnswerEvent]:
        if self._program.statements:
            self._afterword += text
            self.done = bool(
                len(self._afterword.strip()) > MAX_AFTERWORD or _INVENTED.match(self._afterword)
            )
            return
        # White space is told only once words follow: in front of a call it means nothing.
        text = self._space + text
        words = text.rstrip()
        if not self._said and not self._held:
            words = words.lstrip()
        self._space = text[len(text.rstrip()) :] if words else (text if self._said else "")
        if not words:
            return
        if self._hold_prose:
            self._held.append(self._stops.feed(words))
        elif words := self._stops.feed(words):
            self._said = True
            yield ContentDelta(words)
        if self._stops.stopped:
            self.done = True

    # Blocks

    def _read(self, block: _Block, text: str) -> Iterator[AnswerEvent]:
        try:
            statements = block.reader.feed(text)
        except Unreadable as error:
            block.error = error
            return
        if self._take(block, statements) and self._by_statement:
            yield from self._run(block)

    def _take(self, block: _Block, statements: list[Statement]) -> bool:
        """Add statements to the block; whether there is a new call to run."""
        block.statements += statements
        calling = any(calls_tool(statement.source, self._toolset.names) for statement in statements)
        block.is_program = block.is_program or calling
        return calling

    def _ended(self, block: _Block, *, cut_off: bool) -> Iterator[AnswerEvent]:
        if cut_off:
            # The token limit fell into a statement: however it may look, it is half of one.
            self.done = True
            if not block.is_program:
                yield from self._prose(block.raw)
            elif block.error is None:
                yield from self._run(block)
            return
        if block.error is None:
            try:
                self._take(block, block.reader.close())
            except Unreadable as error:
                block.error = error
        if block.error and (block.is_program or self._means_a_call(block)):
            self._reject(block.error.diagnostics)
            return
        if not block.is_program:
            yield from self._no_program(block)
            return
        yield from self._run(block)
        if not self._rejected:
            self._program += block.statements
            self._blocks.append(tuple(statement.source for statement in block.statements))
            self.done = self.done or self._stopped

    def _no_program(self, block: _Block) -> Iterator[AnswerEvent]:
        """Code that calls no offered tool is documentation, unless it tries to."""
        unknown = validate.unknown_calls(Program(tuple(block.statements)), self._toolset)
        is_attempt = block.dialect != "python" or any(
            d.hint and "did you" in d.hint for d in unknown
        )
        if unknown and (self._choice.required or is_attempt):
            self._reject(unknown)
            return
        yield from self._prose(block.raw)
        if self._program.statements:
            self.done = True

    def _means_a_call(self, block: _Block) -> bool:
        """Whether unreadable text was meant to call an offered tool."""
        if block.dialect not in ("python", "json", "yaml"):
            return True
        return mentions_tool(block.raw, self._written)

    def _run(self, block: _Block) -> Iterator[AnswerEvent]:
        if self._stopped or tuple(s.source for s in block.statements) in self._blocks:
            return
        program = self._program + block.statements
        if diagnostics := validate.check(program, self._toolset):
            self._reject(diagnostics)
            return
        try:
            outcome = self._driver.run(program, self._recorded, self._seed)
        except ProgramRejected as error:
            calls = error.calls if self._calls else ()
            self._reject(error.diagnostics)
        else:
            calls = outcome.calls
            self._stopped = outcome.stopped
            self._output = outcome.output
        for call in calls:
            self._recorded.append(Recorded(call))
            self._calls.append(ToolCall(new_id("call_"), call.name, call.arguments, call.kind))
            metrics.TOOL_CALLS.inc()
            yield self._calls[-1]

    def _reject(self, diagnostics: list[Diagnostic] | tuple[Diagnostic, ...]) -> None:
        self._rejected += diagnostics
        self.done = True
