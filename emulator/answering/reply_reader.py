"""Read one reply of the model: stream its prose, run the program in it, and judge the result.

`ReplyReader.feed` and `close` are sans-IO; `answerer.py` brings the chunks and acts on the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import structlog

from emulator.answering.answer_format import AnswerFormat, FormatMismatch
from emulator.answering.call_policy import CallPolicy
from emulator.answering.continuation import Continuation
from emulator.answering.prose import Prose
from emulator.answering.recording import record_reply
from emulator.answering.reply_splitter import ReasoningStart, ReplySplitter
from emulator.answering.verdicts import FinalReply, UnusableReply, Verdict
from emulator.events import AnswerEvent, ContentDelta, ReasoningDelta, ToolCall
from emulator.programs.saved import SavedProgram
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


class CodeDraft(Protocol):
    """What collects the code of a reply: `ProgramDraft`, or `CellDraft` where there is an interpreter."""

    @property
    def names(self) -> ToolNames: ...
    @property
    def offered_names(self) -> list[str]: ...
    @property
    def has_code(self) -> bool: ...
    @property
    def code(self) -> str: ...
    @property
    def calls(self) -> Sequence[ToolCall]: ...
    @property
    def dialects(self) -> Collection[str]: ...
    @property
    def has_open_call(self) -> bool: ...
    @property
    def truncated_block(self) -> str: ...
    @property
    def is_done(self) -> bool: ...
    @property
    def verdict(self) -> Verdict | None: ...
    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]: ...
    def feed(self, text: str, raw: str) -> Iterator[AnswerEvent]: ...
    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[AnswerEvent | str]: ...
    def finish(self) -> Iterator[AnswerEvent]: ...
    def saved_program(self) -> SavedProgram | None: ...
    @property
    def has_repeated_calls(self) -> bool: ...
    def release_calls(self) -> Iterator[ToolCall]: ...


class ReplyReader:
    """One reply. After `close`, ``verdict`` says what came of it; ``done`` when to stop reading."""

    def __init__(
        self,
        draft: CodeDraft,
        prose: Prose,
        choice: CallPolicy,
        *,
        answer_format: AnswerFormat | None = None,
        recover_reasoning: bool = False,
        reasoning_start: ReasoningStart = ReasoningStart.OUTSIDE,
        quotation_questioned: bool = False,
        unfinished_block: str = "",
    ) -> None:
        """``quotation_questioned``: the model was asked whether it means a quoted call, and this reply is
        its answer. ``unfinished_block``: the block in which the last reply was truncated, if this reply
        continues it."""
        self.draft = draft
        self.prose = prose
        self._call_policy = choice
        self._format = answer_format
        self._recover_reasoning = recover_reasoning
        self._quotation_questioned = quotation_questioned
        self._splitter = ReplySplitter(draft.names, reasoning_start)
        self._continuation = (
            Continuation(unfinished_block, draft.names) if unfinished_block else None
        )
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
        if (
            self.draft.verdict is None
            and not self.draft.has_code
            and not self._call_policy.required
        ):
            yield from self._answer(self.prose.close(), cut_off=cut_off)

    def release_prose(self) -> Iterator[AnswerEvent]:
        """The words that were held, where they stand whatever follows."""
        if not self._call_policy.required and (rest := self.prose.close()):
            self.prose.mark_sent(rest)
            yield ContentDelta(rest)

    @property
    def reasoning_start(self) -> ReasoningStart | None:
        """What the reply has shown of how the model's replies begin."""
        return self._splitter.reasoning_start

    @property
    def verdict(self) -> Verdict:
        if (verdict := self.draft.verdict) is not None:
            return verdict
        if self._misformed:
            return UnusableReply("format", {"diagnostics": self._misformed})
        if self._call_policy.required:
            return UnusableReply("required", {"names": self._names()})
        if not self._answered:
            return UnusableReply("empty", {"names": self._names()})
        if self.draft.names and _PROMISE.search(self.prose.sent[-MAX_PROMISE:]):
            return UnusableReply("promised", {"names": self._names()})
        return FinalReply()

    def _names(self) -> list[str]:
        return [self._call_policy.name] if self._call_policy.name else self.draft.offered_names

    def _answer(self, rest: str, *, cut_off: bool) -> Iterator[AnswerEvent]:
        """Tell what was held, in the form that was asked for."""
        if (
            self._quotation_questioned
            and self._format is None
            and _DECLINED.fullmatch(rest.strip())
        ):
            rest, self._answered = "", True
            return
        if rest and self._format is not None and not cut_off:
            try:
                rest = self._format.read(rest)
            except FormatMismatch as error:
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
                yield from self.draft.start_block(dialect, raw, in_a_row=in_a_row)
            case BlockDelta(text, raw):
                yield from self.draft.feed(text, raw)
            case BlockEnd(raw, at_reply_end=at_reply_end):
                # Of a block that was cut nothing is called, whatever its syntax.
                for part in self.draft.end_block(raw, cut_off=cut_off and at_reply_end):
                    if isinstance(part, str):
                        yield from self._no_program(part)
                    else:
                        yield part
        self.done = self.done or self.draft.is_done

    def _reason(self, text: str) -> Iterator[AnswerEvent]:
        if text:  # a bare tag says nothing
            self._reasoning.append(text)
            yield ReasoningDelta(text)

    def _words(self, text: str) -> Iterator[AnswerEvent]:
        self._said = self._said or bool(text.strip())
        if self.draft.has_code:
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
        if self.draft.has_code:
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
