"""Read one reply of the model: stream its prose, run the program in it, and judge the result.

`ReplyReader.feed` and `close` are sans-IO; `answerer.py` brings the chunks and acts on the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from emulator.conversation.answer_format import AnswerFormat, FormatMismatch
from emulator.conversation.call_policy import CallPolicy
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    RefusalDelta,
    ReplyExtra,
)
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Event, Reasoning, Text
from emulator.reading.reply_splitter import EventSplitter, ReasoningStart
from emulator.reading.splitter import Splitter
from emulator.reply.continuation import Continuation
from emulator.reply.draft import Draft
from emulator.reply.judge import Place
from emulator.reply.prose import Prose
from emulator.reply.question import Answer, Question
from emulator.reply.recording import record_reply
from emulator.reply.verdicts import FinalReply, UnusableReply, Verdict

MAX_AFTERWORD = 300
"""Characters of prose after a program that are read in search of another block."""


class ReplyReader:
    """Reads one reply. ``done`` says when to stop feeding; after `close` the ``verdict`` is final."""

    def __init__(
        self,
        draft: Draft,
        prose: Prose,
        choice: CallPolicy,
        splitter: EventSplitter,
        *,
        answer_format: AnswerFormat | None = None,
        question: Question | None = None,
        answered: Question | None = None,
        unfinished_block: str = "",
        follows_words: bool = False,
    ) -> None:
        """``question`` is what this reply answers; ``answered`` was answered before. ``unfinished_block`` is
        the block in which the last reply was truncated, if this reply continues it; ``follows_words``: that
        reply had more than the block."""
        self.draft = draft
        self.prose = prose
        self._call_policy = choice
        self._format = answer_format
        self._question = question
        self._answered_question = answered
        self._undecided: list[Event] | None = None if question is None else []
        """The reply so far, until its answer to the question is known."""
        self.says_run = False
        """The reply answers that the blocks run which the model was asked about."""
        self.repeats_answer = False
        """The reply is RUN or NO once more, which is no answer for the client."""
        self.says_no = False
        """The reply answers that they do not."""
        self._splitter = splitter
        self._continuation = (
            Continuation(unfinished_block, draft.names) if unfinished_block else None
        )
        self._reasoning: list[str] = []
        self._afterword = ""
        """The words after a program, which are not shown."""
        self._passed = 0
        """The characters of the reply about which the splitter has decided."""
        self.has_words = follows_words
        """Whether there are words besides the blocks and the reasoning."""
        self._space = ""
        """White space after a block that is not decided yet."""
        self._misformed = ""
        self._answered = False
        self.words = ""
        """The answer, if it is words."""
        self.extras: list[ReplyExtra] = []
        """What the reply has besides them."""
        self._has_content = False
        """Whether the reply has prose or a block outside of reasoning."""
        self.done = False
        self.size = 0
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The reply so far as the model wrote it, without reasoning from a separate field."""
        return "".join(self._pieces)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    @property
    def is_undecided(self) -> bool:
        """Whether some of the text so far may still be words or a call."""
        in_splitter = self._passed < self.size
        return in_splitter or self.draft.is_undecided or self.prose.is_pending

    def record(self) -> None:
        """Show the growing reply in the request's trace."""
        record_reply(self._pieces, self._reasoning)

    def feed(self, content: str, reasoning: str = "") -> Iterator[AnswerEvent]:
        if reasoning:
            yield from self._events(self._splitter.reasoning_field_seen())
            yield from self._reason(reasoning)
        self._pieces.append(content)
        self.size += len(content)
        if self._continuation is not None:
            content = self._continuation.feed(content)
        yield from self._events(self._splitter.feed(content))

    def close(self, *, cut_off: bool = False, has_calls: bool = False) -> Iterator[AnswerEvent]:
        """End the reply; ``cut_off`` if something other than the model ended it, ``has_calls`` if the
        upstream has made calls of its own."""
        if self._continuation is not None:
            yield from self._events(self._splitter.feed(self._continuation.close()))
        if not self.done:
            for event in self._splitter.close(cut_off=cut_off):
                if not self.done:
                    yield from self._event(event, cut_off=cut_off)
            yield from self._read_answer(cut_off=cut_off)
            yield from self._settle(self._end)
        if not (self._has_content or cut_off or has_calls or self._question):
            yield from self._read_end_of_reasoning()
        if self._call_policy.required and not (cut_off or has_calls):
            yield from self.draft.read_object(self.prose.close())
        self.done = True
        yield from self.draft.finish()
        if not (self.draft.verdict or self.draft.has_code or self._call_policy.required):
            yield from self._answer(self.prose.close(), cut_off=cut_off)

    def release_prose(self) -> Iterator[AnswerEvent]:
        """Send the buffered prose of a reply that is not asked for again as a whole."""
        if not self._call_policy.required and (rest := self.prose.close()):
            self.prose.mark_sent(rest)
            yield ContentDelta(rest)

    @property
    def _end(self) -> Place:
        """The place of a block that ends the reply."""
        return Place.LAST if self.has_words else Place.ALONE

    def run_asked(self) -> Iterator[AnswerEvent]:
        """Run the blocks about which the model was asked."""
        yield from self.draft.run_asked()
        yield from self.draft.finish()

    def show_rest(self) -> Iterator[AnswerEvent]:
        """Send what is not shown yet: nothing of the reply runs, and no better one came."""
        blocks, self.draft.withheld = self.draft.withheld, []
        for block in blocks:
            if words := self.prose.feed(self.draft.shown(block)):
                yield ContentDelta(words)
        yield from self.release_prose()

    @property
    def reasoning_start(self) -> ReasoningStart | None:
        """What the reply has shown about where the model's replies start."""
        return self._splitter.reasoning_start

    @property
    def verdict(self) -> Verdict:
        if (verdict := self.draft.verdict) is not None:
            return verdict
        if any(isinstance(one, RefusalDelta) for one in self.extras):  # no other reply will come
            return FinalReply()
        if self._misformed:
            return UnusableReply("format", {"diagnostics": self._misformed})
        if self._call_policy.required:
            return UnusableReply("required", {"names": self._names()})
        if not (self._answered or self.extras):
            return UnusableReply("empty", {"names": self._names()})
        return FinalReply()

    def _names(self) -> list[str]:
        return [self._call_policy.name] if self._call_policy.name else self.draft.offered_names

    def _answer(self, rest: str, *, cut_off: bool) -> Iterator[AnswerEvent]:
        """Send the buffered prose, in the required format."""
        if self._question is not None:  # the first reply stays as it is
            self._answered = True
            return
        answered = self._answered_question
        if answered is not None and answered.read(rest) is not Answer.OTHER:
            self._answered = self.repeats_answer = True
            return
        if rest and self._format is not None and not cut_off:
            try:
                rest = self._format.read(rest)
            except FormatMismatch as error:
                self._misformed = str(error)
                return
        self.words = self.prose.sent + rest
        self._answered = bool(self.words)
        if rest:
            yield ContentDelta(rest)
        if self._format is None and not cut_off:
            self.draft.ask_about_words(self.prose.sent + rest)

    # Events

    def _events(self, events: Iterable[Event]) -> Iterator[AnswerEvent]:
        for event in [] if self.done else events:
            yield from self._event(event)
            if self.done:
                return

    def _event(self, event: Event, *, cut_off: bool = False) -> Iterator[AnswerEvent]:
        if self._undecided is not None and not isinstance(event, Reasoning):
            self._undecided.append(event)
            if isinstance(event, BlockEnd):
                yield from self._read_answer(cut_off=cut_off)
            return
        self._passed += len(event.raw)
        match event:
            case Reasoning(text):
                yield from self._reason(text)
            case Text(text):
                yield from self._words(text)
            case BlockStart(dialect, raw):
                if self.draft.is_unsettled and not self.draft.waits_with(dialect, raw):
                    yield from self._settle()
                self._has_content = True
                if (
                    self.draft.has_code
                    and self._afterword
                    and not self.draft.is_marked(dialect, raw)
                ):
                    self.done = True  # what follows an act after words may be its invented output
                    return
                if not self.draft.is_done:
                    in_a_row = not self._afterword.strip()
                    start = self.draft.start_block(dialect, raw, in_a_row=in_a_row)
                    yield from self._parts(start)
            case BlockDelta(text, raw):
                yield from self._parts(self.draft.feed(text, raw))
            case BlockEnd(raw, at_reply_end=at_reply_end):
                # A truncated block calls nothing, whatever its syntax.
                yield from self._parts(self.draft.end_block(raw, cut_off=cut_off and at_reply_end))
        self.done = self.done or self.draft.is_done

    def _read_answer(self, *, cut_off: bool) -> Iterator[AnswerEvent]:
        """Read the answer to the question, once its first block or the reply has ended. Nothing of it acts
        before."""
        if self._question is None or self._undecided is None:
            return
        events, self._undecided = self._undecided, None
        answer = self._question.read("".join(event.raw for event in events))
        self.says_no = answer is Answer.NO
        is_final = self.says_no or self._question.is_quoted
        if answer is Answer.RUN:
            # Next to RUN only a marked block runs, instead of what was asked about.
            block = [] if is_final else self._marked_after_words(events)
            self.says_run, events = not block, block
        self.done = is_final or self.says_run
        for event in () if self.done else events:
            yield from self._event(event, cut_off=cut_off)

    def _marked_after_words(self, events: Sequence[Event]) -> list[Event]:
        """The marked block that ends ``events``, if there are words before it."""
        for place, event in enumerate(events):
            if isinstance(event, BlockStart):
                has_words = any(one.raw.strip() for one in events[:place])
                is_marked = has_words and self.draft.is_marked(event.dialect, event.raw)
                return [*events[place:]] if is_marked else []
        return []

    def _parts(self, parts: Iterable[AnswerEvent | str]) -> Iterator[AnswerEvent]:
        for part in parts:
            if isinstance(part, str):
                yield from self._not_code(part)
            else:
                yield part

    def _settle(self, place: Place = Place.FOLLOWED) -> Iterator[AnswerEvent]:
        """Let the draft decide about a block that waited for what follows it."""
        if self.draft.is_unsettled:
            yield from self._parts(self.draft.settle(place))
            self.done = self.done or self.draft.is_done
            space, self._space = self._space, ""
            if space:
                yield from self._words(space)

    def _reason(self, text: str) -> Iterator[AnswerEvent]:
        if text:  # a tag without text is empty
            self._reasoning.append(text)
            yield ReasoningDelta(text)

    def _words(self, text: str) -> Iterator[AnswerEvent]:
        if text.strip():
            self._has_content = self.has_words = True
            yield from self._settle()
        elif self.draft.is_unsettled:
            self._space += text
            return
        if self.draft.has_code and not self.prose.shows_afterwords:
            # A reply may end in endless white space: it does not count.
            self._afterword = (self._afterword + text).lstrip()
            longest = 0 if self.draft.expects_blocks else MAX_AFTERWORD
            self.done = len(self._afterword.strip()) > longest
            return
        if words := self.prose.feed(text):
            yield ContentDelta(words)
        self.done = self.prose.stopped

    def _not_code(self, raw: str) -> Iterator[AnswerEvent]:
        """A block that calls no offered tool is prose; after a program it is an invented result."""
        if self.draft.has_code and not self.prose.shows_afterwords:
            self.done = True
        else:
            yield from self._words(raw)

    def _read_end_of_reasoning(self) -> Iterator[AnswerEvent]:
        """A complete block that ends the reasoning of a reply without an answer is its call; blocks before
        are drafts."""
        splitter = Splitter(self.draft.names)
        events = [*splitter.feed("".join(self._reasoning).rstrip()), *splitter.close()]
        for event in _last_blocks(events):
            yield from self._event(event)
        yield from self._settle(self._end)


def _last_blocks(events: Sequence[Event]) -> Sequence[Event]:
    """The complete blocks that end ``events``, with nothing but white space between them."""
    start = len(events)
    for place in range(len(events) - 1, -1, -1):
        match events[place]:
            case BlockStart():
                start = place
            case BlockEnd(closed=False):
                break
            case Text(text) | Reasoning(text) if text.strip():
                break
    return events[start:]
