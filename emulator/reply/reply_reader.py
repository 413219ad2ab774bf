"""Read one reply of the model: stream its prose, run the program in it, and judge the result.

`ReplyReader.feed` and `close` are sans-IO; `answerer.py` brings the chunks and acts on the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from emulator.conversation.answer_format import AnswerFormat, FormatMismatch
from emulator.conversation.call_policy import CallPolicy
from emulator.core.events import (
    AnswerEvent,
    CallStarted,
    CodeStarted,
    ContentDelta,
    ProgramStarted,
    ReasoningDelta,
    ToolCall,
)
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Event, Reasoning, Text
from emulator.reading.reply_splitter import EventSplitter, ReasoningStart
from emulator.reading.splitter import Splitter
from emulator.reply.continuation import Continuation
from emulator.reply.draft import Draft, HeldText
from emulator.reply.judge import Place
from emulator.reply.prose import Prose
from emulator.reply.recording import record_reply
from emulator.reply.verdicts import FinalReply, UnusableReply, Verdict

MAX_AFTERWORD = 300
"""Characters of prose after a program that are read in search of another block."""
# A model that writes the output of its program invents it: the rest of the reply is useless.
_INVENTED_OUTPUT = re.compile(
    r"[*#>`_\s<]*(?:tool_|function_)?(?:output|results?|returns?|response)(?!\w|\Z)|\s*```(?!py|\Z)",
    re.IGNORECASE,
)
_PERHAPS_OUTPUT = re.compile(r"[*#>`_\s<]*\w{0,24}")
# "NO", "No, I only quoted it."; a longer reply is for the client.
_DECLINED = re.compile(r"\W{0,8}no\b[^\n]{0,160}", re.IGNORECASE)
_RUN = re.compile(r"\W{0,8}run\W{0,8}", re.IGNORECASE)
"""The answer to the question whether a block should run."""


_ACTS = (ToolCall, CallStarted, CodeStarted, ProgramStarted)
"""What begins a call or a cell."""


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
        quotation_questioned: bool = False,
        answers_question: bool = False,
        unfinished_block: str = "",
        follows_words: bool = False,
    ) -> None:
        """``quotation_questioned``: the model was asked whether it means a quoted call, and this reply is its
        answer. ``answers_question``: it was asked whether a block should run. ``unfinished_block``: the block
        in which the last reply was truncated, if this reply continues it; ``follows_words``: that reply had
        more than the block."""
        self.draft = draft
        self.prose = prose
        self._call_policy = choice
        self._format = answer_format
        self._quotation_questioned = quotation_questioned
        self._answers_question = answers_question
        self._splitter = splitter
        self._continuation = (
            Continuation(unfinished_block, draft.names) if unfinished_block else None
        )
        self._reasoning: list[str] = []
        self._afterword = ""
        """The words after a program that are not shown, or not yet."""
        self._shows_afterword = False
        self._passed = 0
        """The characters of the reply about which the splitter has decided."""
        self.has_words = follows_words
        """Whether there are words besides the blocks and the reasoning."""
        self._space = ""
        """White space after a block that is not decided yet."""
        self._held: list[str] = []
        """A block about which the model is asked, and what follows it."""
        self._misformed = ""
        self._answered = False
        self._has_content = False
        """Whether the reply has prose or a block outside of reasoning."""
        self.says_run = False
        """The reply answers that the block should run."""
        self.done = False
        self.size = 0
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The reply so far as the model wrote it, without reasoning from a separate field."""
        return "".join(self._pieces)

    @property
    def is_undecided(self) -> bool:
        """Whether some of the text so far may still be words or a call."""
        in_splitter = self._passed < self.size
        return in_splitter or self.draft.is_undecided or bool(self._held or self.prose.is_pending)

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
            yield from self._settle(self._end)
            yield from self._end_afterword()
        if not (self._has_content or cut_off or has_calls):
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

    def run_doubtful(self) -> Iterator[AnswerEvent]:
        """Run the blocks about which the model was asked; what followed them is dropped."""
        self._held.clear()
        yield from self.draft.run_doubtful()
        yield from self.draft.finish()

    def show_doubtful(self) -> Iterator[AnswerEvent]:
        """Send the buffered text: nothing of it runs."""
        text, self._held = "".join(self._held), []
        if words := self.prose.feed(text):
            yield ContentDelta(words)

    def show_whole(self) -> Iterator[AnswerEvent]:
        """Send all that is buffered: nothing of the reply runs, and no other follows."""
        yield from self.show_doubtful()
        yield from self.release_prose()

    @property
    def reasoning_start(self) -> ReasoningStart | None:
        """What the reply has shown about where the model's replies start."""
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
        return FinalReply()

    def _names(self) -> list[str]:
        return [self._call_policy.name] if self._call_policy.name else self.draft.offered_names

    def _answer(self, rest: str, *, cut_off: bool) -> Iterator[AnswerEvent]:
        """Send the buffered prose, in the required format."""
        if self._answers_question:  # the first reply stays as it is
            self._answered = True
            self.says_run = _RUN.fullmatch(rest.strip()) is not None
            return
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
                if not self.draft.is_done:
                    in_a_row = not self._afterword.strip()
                    yield from self._end_afterword()
                    start = self.draft.start_block(dialect, raw, in_a_row=in_a_row)
                    yield from self._parts(start)
            case BlockDelta(text, raw):
                yield from self._parts(self.draft.feed(text, raw))
            case BlockEnd(raw, at_reply_end=at_reply_end):
                # A truncated block calls nothing, whatever its syntax.
                yield from self._parts(self.draft.end_block(raw, cut_off=cut_off and at_reply_end))
        self.done = self.done or self.draft.is_done

    def _parts(self, parts: Iterable[AnswerEvent | str]) -> Iterator[AnswerEvent]:
        for part in parts:
            if isinstance(part, HeldText):
                self._held.append(part)
            elif isinstance(part, str):
                yield from self._not_code(part)
            else:
                if isinstance(part, _ACTS):
                    yield from self.show_doubtful()
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
        if self._held:
            self._held.append(text)
            return
        if self.draft.has_code and not self._shows_afterword:
            yield from self._read_afterword(text)
            return
        if words := self.prose.feed(text):
            yield ContentDelta(words)
        self.done = self.prose.stopped

    def _read_afterword(self, text: str) -> Iterator[AnswerEvent]:
        """Words after a program. They are dropped, unless the reply is the upstream's own."""
        words = self._afterword + text
        # A reply may end in endless white space: it does not count.
        space = words[: len(words) - len(words.lstrip())][-2:]
        words = self._afterword = space + words.lstrip()
        if _INVENTED_OUTPUT.match(words):
            self.done = True
        elif not self.prose.shows_afterwords:
            longest = 0 if self.draft.expects_blocks else MAX_AFTERWORD
            self.done = len(words.strip()) > longest
        elif not _PERHAPS_OUTPUT.fullmatch(words):
            yield from self._show_afterword()

    def _show_afterword(self) -> Iterator[AnswerEvent]:
        words, self._afterword = self._afterword, ""
        self._shows_afterword = True
        before = self.prose.sent[-1:]
        yield from self._words(words if before.strip() else words.lstrip())

    def _end_afterword(self) -> Iterator[AnswerEvent]:
        """Another block starts, or the reply ends."""
        if self.prose.shows_afterwords and self._afterword.strip() and not self.done:
            yield from self._show_afterword()
        self._shows_afterword = False

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
