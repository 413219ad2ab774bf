"""Read one reply of the model: tell what can be told at once, run the program in it, judge the rest.

`Reply.feed` and `Reply.close` are sans-IO; `answerer.py` brings the chunks and acts on the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import structlog

from emulator.answering.answer_format import AnswerFormat, Misformed
from emulator.answering.continuation import Continuation
from emulator.answering.prose import Prose
from emulator.answering.recording import record_reply
from emulator.answering.reply_splitter import Begins, ReplySplitter
from emulator.answering.tool_choice import Choice
from emulator.answering.verdicts import Answered, Refused, Verdict
from emulator.events import AnswerEvent, ContentDelta, ReasoningDelta, ToolCall
from emulator.programs.saved import Saved
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Event, Reasoning, Text
from emulator.reading.splitter import Splitter
from emulator.reading.tool_names import ToolNames

log = structlog.get_logger()

# Prose behind a program is read on only for a further program in it, and only so far.
MAX_AFTERWORD = 300
MAX_PROMISE = 2000
"""Characters at the end of an answer in which a promise is looked for."""
_INVENTED = re.compile(
    r"\s*(?:[*#>`_\s]*)(?:output|results?|returns?|response)\b|\s*```(?!py)", re.IGNORECASE
)
# "Let me check the weather.", and then nothing; but not "Let me know".
_PROMISE = re.compile(
    r"(?:\b(?:I'll|I will|I am going to|I'm going to|let me|let's)\s+(?:now\s+|first\s+|just\s+)?"
    r"(?:check|look|call|use|get|fetch|find|search|retrieve|query|run|see)\b)[^.!?\n]*[.!:\u2026]*\s*$",
    re.IGNORECASE,
)


# "NO", "No, I only quoted it."; what the model says beyond that is for the client.
_DECLINED = re.compile(r"\W{0,8}no\b[^\n]{0,160}", re.IGNORECASE)


class Drafting(Protocol):
    """What collects the code of a reply: `ProgramDraft`, or `CellDraft` where there is an interpreter."""

    @property
    def names(self) -> ToolNames: ...
    @property
    def offered(self) -> list[str]: ...
    @property
    def wrote(self) -> bool: ...
    @property
    def code(self) -> str: ...
    @property
    def calls(self) -> Sequence[ToolCall]: ...
    @property
    def dialects(self) -> Collection[str]: ...
    @property
    def begun(self) -> bool: ...
    @property
    def cut(self) -> str: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def verdict(self) -> Verdict | None: ...
    def begin(self, dialect: str, raw: str, *, in_a_row: bool = False) -> Iterator[AnswerEvent]: ...
    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]: ...
    def end(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]: ...
    def finish(self) -> Iterator[AnswerEvent]: ...
    def saved(self) -> Saved | None: ...
    @property
    def suspicious(self) -> bool: ...
    def released(self) -> Iterator[ToolCall]: ...


class Reply:
    """One reply. After `close`, ``verdict`` says what came of it; ``done`` when to stop reading."""

    def __init__(
        self,
        draft: Drafting,
        prose: Prose,
        choice: Choice,
        *,
        answer_format: AnswerFormat | None = None,
        recover_reasoning: bool = False,
        begins: Begins = Begins.OUTSIDE,
        asked_about: bool = False,
        cut: str = "",
    ) -> None:
        """``begins``: how the model's replies do. ``asked_about``: the model was asked whether it means
        what it had quoted, and this is the answer. ``cut`` is the block that an earlier reply was cut off
        in; this one is to go on with it."""
        self.draft = draft
        self.prose = prose
        self._choice = choice
        self._format = answer_format
        self._recover_reasoning = recover_reasoning
        self._asked_about = asked_about
        self._splitter = ReplySplitter(draft.names, begins)
        self._continuation = Continuation(cut, draft.names) if cut else None
        self._reasoning: list[str] = []
        self._afterword = ""
        self._misformed = ""
        self._answered = False
        self._said = False
        """Whether there was a word or a block outside of reasoning."""
        self.done = False
        self.size = 0
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The reply so far, as the model wrote it, without reasoning in a field of its own."""
        return "".join(self._pieces)

    def record(self) -> None:
        """Let the trace of the request have the reply, as it comes."""
        record_reply(self._pieces, self._reasoning)

    def feed(self, content: str, reasoning: str = "") -> Iterator[AnswerEvent]:
        if reasoning:
            yield from self._events(self._splitter.apart())
            yield from self._reason(reasoning)
        self._pieces.append(content)
        self.size += len(content)
        if self._continuation is not None:
            content = self._continuation.feed(content)
        yield from self._events(self._splitter.feed(content))

    def close(self, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        """The reply has ended; ``cut_off`` when something else than the model ended it."""
        if self._continuation is not None:
            yield from self._events(self._splitter.feed(self._continuation.close()))
        if not self.done:
            for event in self._splitter.close(cut_off=cut_off):
                yield from self._event(event, cut_off=cut_off)
        if self._recover_reasoning and not (self._said or cut_off):
            yield from self._recover()
        self.done = True
        yield from self.draft.finish()
        if self.draft.verdict is None and not self.draft.wrote and not self._choice.required:
            yield from self._answer(self.prose.close(), cut_off=cut_off)

    def rest(self) -> Iterator[AnswerEvent]:
        """The words that were held, where they stand whatever follows."""
        if not self._choice.required and (rest := self.prose.close()):
            self.prose.tell(rest)
            yield ContentDelta(rest)

    @property
    def begins(self) -> Begins | None:
        """What the reply has shown of how the model's replies begin."""
        return self._splitter.begins

    @property
    def verdict(self) -> Verdict:
        if (verdict := self.draft.verdict) is not None:
            return verdict
        if self._misformed:
            return Refused("format", {"diagnostics": self._misformed})
        if self._choice.required:
            return Refused("required", {"names": self._names()})
        if not self._answered:
            return Refused("empty", {"names": self._names()})
        if self.draft.names and _PROMISE.search(self.prose.sent[-MAX_PROMISE:]):
            return Refused("promised", {"names": self._names()})
        return Answered()

    def _names(self) -> list[str]:
        return [self._choice.name] if self._choice.name else self.draft.offered

    def _answer(self, rest: str, *, cut_off: bool) -> Iterator[AnswerEvent]:
        """Tell what was held, in the form that was asked for."""
        if self._asked_about and self._format is None and _DECLINED.fullmatch(rest.strip()):
            rest, self._answered = "", True
            return
        if rest and self._format is not None and not cut_off:
            try:
                rest = self._format.read(rest)
            except Misformed as error:
                self._misformed = str(error)
                return
        self._answered = bool(rest or self.prose.sent)
        if rest:
            yield ContentDelta(rest)

    # Events

    def _events(self, events: Iterable[Event]) -> Iterator[AnswerEvent]:
        for event in [] if self.done else events:
            yield from self._event(event)
            if self.done:
                return

    def _event(self, event: Event, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        match event:
            case Reasoning(text):
                yield from self._reason(text)
            case Text(text):
                yield from self._words(text)
            case BlockStart(dialect, raw):
                self._said = True
                in_a_row = not self._afterword.strip()
                yield from self.draft.begin(dialect, raw, in_a_row=in_a_row)
            case BlockDelta(text, raw):
                yield from self.draft.feed(text, raw)
            case BlockEnd(raw, at_reply_end=at_reply_end):
                # Of a block that was cut nothing is called, whatever its syntax.
                for part in self.draft.end(raw, cut_off=cut_off and at_reply_end):
                    if isinstance(part, str):
                        yield from self._no_program(part)
                    else:
                        yield part
        self.done = self.done or self.draft.stopped

    def _reason(self, text: str) -> Iterator[AnswerEvent]:
        if text:  # a bare tag says nothing
            self._reasoning.append(text)
            yield ReasoningDelta(text)

    def _words(self, text: str) -> Iterator[AnswerEvent]:
        self._said = self._said or bool(text.strip())
        if self.draft.wrote:
            # White space says nothing, and there may be much of it.
            self._afterword = (self._afterword + text).lstrip()
            words = self._afterword
            self.done = bool(len(words.strip()) > MAX_AFTERWORD or _INVENTED.match(words))
            return
        if words := self.prose.feed(text):
            yield ContentDelta(words)
        self.done = self.prose.stopped

    def _no_program(self, raw: str) -> Iterator[AnswerEvent]:
        """Code that calls no offered tool is prose; behind a program it is an invented result."""
        if self.draft.wrote:
            self.done = True
        else:
            yield from self._words(raw)

    def _recover(self) -> Iterator[AnswerEvent]:
        """There is no answer but reasoning: run the code in it, since the operator allows that."""
        log.warning("code taken from reasoning, since there is no answer outside it")
        splitter = Splitter(self.draft.names)
        for event in [*splitter.feed("".join(self._reasoning)), *splitter.close()]:
            if not isinstance(event, (Text, Reasoning)):
                yield from (
                    sent for sent in self._event(event) if not isinstance(sent, ContentDelta)
                )
