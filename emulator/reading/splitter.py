"""Split a reply, as it streams in, into reasoning, prose and blocks that may be a program.

Sans-IO: text in, events out; the events are the same for every way to cut the text (see
`events.merge_events`), and their `raw` joined gives back the reply. Of the tools it knows the names
alone. Whether a block is a program is for the readers and the pipeline to say; a block that is
none can be given back as prose, byte for byte.

Prose goes out at once; held back is only what may begin a block or a tag, `text_buffer.HOLD`
characters at most.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator
from functools import lru_cache

from emulator.reading import blocks, commands, json_blocks
from emulator.reading.events import (
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merge_events,
)
from emulator.reading.fences import fenced
from emulator.reading.openings import DULL, FENCES, LINES, Fence, fence_in, json_opens
from emulator.reading.reasoning import blank, mentioned, reasoning
from emulator.reading.scanner import Position, Scanner, Verdict
from emulator.reading.tags import (
    AMBIGUOUS,
    LEFTOVER,
    LEFTOVER_LINES,
    REASONING,
    SILENT,
    Tags,
    may_be_element,
)
from emulator.reading.text_buffer import TextBuffer
from emulator.reading.tool_names import ToolNames

#: A longer run of backticks is decoration.
_RUN = 64
#: Where prose may stop being prose; `f` only where it may begin "functools[".
_DULL = re.compile(DULL)
_POINTS = r"[`<\[{]|\](?=\Z|<)|f(?=\Z|u(?:\Z|n(?:\Z|c)))"
_POINT = re.compile(rf"\n(?!{DULL})|{_POINTS}")
_POINT_IN_SPAN = re.compile(rf"\n|{_POINTS}")  # the line's end closes a code span
#: How Functionary's words begin where the template has written the ``>>>`` already.
_FIRST_CHANNEL = "all\n"
#: Characters of a tag that is not known by heart.
_ELEMENT = 100
_ELEMENT_BEGINS = re.compile(r"<[\w｜|]")


class Splitter:
    """One reply. `names`: the offered functions, as Python names or written -> Python name.

    `reasoning_open`: the prompt's template has opened the reasoning already; `reasoning_ended`
    says that a closing tag has come. `unopened_reasoning` says that a `</think>` came which nothing had
    opened: all text before it was reasoning (R1's templates do that), and the next reply of that
    model should be split with `reasoning_open`.
    """

    def __init__(self, names: Collection[str] = (), *, reasoning_open: bool = False) -> None:
        self._names = ToolNames.of(names)
        self._tags, self._known, self._heads = _tags_and_tokens(self._names)
        self._longest = len(self._known[0])
        self._text = TextBuffer()
        self._inline = 0  # backticks that opened the code span we are in
        self._opened = reasoning_open
        self._events = self._reply(reasoning_open)
        self._shells = False
        self.unopened_reasoning = False
        self._read = False  # a block was: then a closing tag too many says nothing
        self.reasoning_ended = False

    def feed(self, text: str) -> list[Event]:
        """What can be said now."""
        self._text.feed(text)
        return self._events_now()

    def close(self) -> list[Event]:
        """The rest; the reply has ended."""
        self._text.final = True
        return self._events_now()

    def _events_now(self) -> list[Event]:
        events: list[Event] = []
        for event in self._events:
            if event is None:
                break
            if event.raw or isinstance(event, (BlockStart, BlockEnd)):
                events.append(event)
        return merge_events(events)

    def _reply(self, reasoning_open: bool) -> Generator[Event | None, None, None]:
        after = Position.LINE_START
        if reasoning_open:
            after = yield from self._reasoning(tuple(REASONING.values()))
        while len(self._text) or not self._text.final:
            found: Scanner | Position | None = None
            if after is not Position.MID_LINE:
                found = yield from self._line(code=after is Position.LINE_START)
            if found is None:
                found = yield from self._prose()
            after = found if isinstance(found, Position) else (yield from found)

    def _line(self, *, code: bool) -> Generator[Event | None, None, Scanner | None]:
        """At the beginning of a line: the scanner of what begins with it, if anything does."""
        text = self._text
        self._inline = 0
        while True:
            head, whole = text.head()
            if head.startswith("\n"):
                yield Text(text.take(1))
                code = True
                continue
            found = self._begins(head, whole, code=code)
            if not isinstance(found, Verdict):
                return found
            if found is Verdict.NO or whole:
                return None
            yield None

    def _begins(self, head: str, whole: bool, *, code: bool) -> Scanner | Verdict:
        if _DULL.match(head):
            return Verdict.NO
        if not self._text.last and self._names and _FIRST_CHANNEL.startswith(head[:4]):
            if head.startswith(_FIRST_CHANNEL):
                return self._silent(_FIRST_CHANNEL)
            if not whole:
                return Verdict.MAYBE
        for what, opens in LINES:
            if what == "code" and (not code or self._is_example(head)):
                continue
            found = opens(head, whole, self._names)
            if found.verdict is Verdict.MAYBE:
                return Verdict.MAYBE
            if found.verdict is Verdict.YES:
                return self._begun(what, head, sure=found.sure)
        return Verdict.NO if head else Verdict.MAYBE

    def _is_example(self, head: str) -> bool:
        """Whether a line behind words is indented as Markdown's code blocks and tracebacks are."""
        return bool(self._text.last) and head.startswith(("    ", "\t"))

    def _begun(self, what: str, head: str, *, sure: bool) -> Scanner | Verdict:
        self._read |= what != "channel"
        match what:
            case "fence":
                fence = fence_in(head.splitlines(keepends=True)[0], self._names)
                return self._fence(fence) if fence else Verdict.NO
            case "patch":
                return commands.patch(self._text)
            case "json" if sure:
                return json_blocks.json_line(self._text, self._names)
            case "json":
                return json_blocks.json_perhaps(self._text, self._names, midline=False)
            case "named":
                return json_blocks.named_line(self._text, self._names)
            case "channel":
                return self._silent(head[: head.index("\n") + 1])
            case "code":
                return blocks.code(self._text, self._names)
        return blocks.lines(self._text, what)

    def _fence(self, fence: Fence) -> Scanner:
        """A fence; the first one of a shell may hold a command."""
        is_shell = fence.language in commands.SHELLS and not fence.code
        if is_shell and self._names.command and not self._shells:
            self._shells = True
            return commands.command_fence(self._text, fence, self._names)
        return fenced(self._text, fence, self._names)

    def _prose(self) -> Generator[Event | None, None, Scanner | Position]:
        """Within a line of prose, up to its end or to what begins in it."""
        text = self._text
        while True:
            point = _POINT_IN_SPAN if self._inline else _POINT
            match = point.search(text.text, text.at)
            yield Text(text.take((match.start() if match else len(text.text)) - text.at))
            if match is None:
                if text.final:
                    return Position.LINE_START
                yield None
                continue
            found = self._point(match.group())
            if found is Verdict.MAYBE:
                yield None
            elif isinstance(found, str):
                yield Text(text.take(len(found)))
                if found == "\n":
                    return Position.LINE_START
            elif not isinstance(found, Verdict):
                return found

    def _point(self, character: str) -> Scanner | Verdict | str:
        """What stands at hand: what a scanner reads, perhaps something (MAYBE), or this prose."""
        if character == "\n":
            return character
        if character == "`":
            return self._backticks()
        if self._inline:
            return character
        last = self._text.last
        if character == "]" and last.strip():
            return character
        if character != "f" or not last.isalnum():
            found = self._tag()
            if not isinstance(found, Verdict) or found is Verdict.MAYBE:
                return found
        if character in "{[":
            head, whole = self._text.head()
            verdict = json_opens(head, whole, self._names)
            if verdict.verdict is Verdict.MAYBE:
                return Verdict.MAYBE
            if verdict.verdict is Verdict.YES and verdict.sure:
                return json_blocks.json_perhaps(self._text, self._names, midline=True)
        return character

    def _backticks(self) -> Scanner | Verdict | str:
        """A run of backticks: a code span begins or ends, or a fence begins within the line."""
        head, whole = self._text.head()
        run = head[: len(head) - len(head.lstrip("`"))][:_RUN]
        if run == head and len(run) < _RUN and not whole:
            return Verdict.MAYBE
        if not self._inline and 3 <= len(run) < _RUN:
            line, newline, _ = head.partition("\n")
            info = line[len(run) :].strip()
            known = re.fullmatch(r"[\w+#.\-]*", info) is not None
            if known and not newline and not whole:
                return Verdict.MAYBE
            if known and newline and info.lower() in FENCES:
                fence = fence_in(line + newline, self._names)
                if fence is not None:
                    return fenced(self._text, fence, self._names)
        if self._inline in (0, len(run)):
            self._inline = 0 if self._inline else len(run)
        return run

    # -- tags

    def _tag(self) -> Scanner | Verdict:
        """The scanner of the tag at hand; NO where none stands, or where it is only spoken of."""
        rest, whole = self._text.head(max(self._longest, _ELEMENT))
        if len(rest) > 1 and rest[:2] not in self._heads and not _ELEMENT_BEGINS.match(rest):
            return Verdict.NO
        tag = next((tag for tag in self._known if rest.startswith(tag)), None)
        longer = not whole and any(
            len(rest) < len(one) and one.startswith(rest) for one in self._known
        )
        if longer:
            return Verdict.MAYBE
        element = self._tags.literal.get(tag) if tag else self._tags.element(rest, self._names)
        if tag is None and element is None:
            return Verdict.MAYBE if not whole and may_be_element(rest) else Verdict.NO
        mention = mentioned(self._text, tag or (element.opening if element else ""))
        if mention is not Verdict.NO:
            return Verdict.MAYBE if mention is Verdict.MAYBE else Verdict.NO
        if element is not None:
            self._read = True
            return blocks.tagged(self._text, element)
        if tag in REASONING:
            return self._thinking(str(tag))
        if tag in SILENT:
            return self._silent(str(tag))
        if tag in LEFTOVER or tag in LEFTOVER_LINES:
            return self._leftover(str(tag))
        return self._unopened(str(tag))

    def _leftover(self, token: str) -> Scanner | Verdict:
        if token in LEFTOVER_LINES and self._text.last not in ("", "\n"):
            return Verdict.NO
        return self._silent(token) if self._read else blocks.leftover(self._text, token)

    def _silent(self, token: str) -> Scanner:
        yield Reasoning("", self._text.take(len(token)))
        return Position.LINE_START

    def _thinking(self, tag: str) -> Scanner:
        self._opened = True
        yield Reasoning("", self._text.take(len(tag)))
        return (yield from self._reasoning((REASONING[tag],)))

    def _unopened(self, closing: str) -> Scanner:
        self.unopened_reasoning |= not self._opened
        yield Reasoning("", self._text.take(len(closing)))
        return (yield from blank(self._text))

    def _reasoning(self, closings: tuple[str, ...]) -> Scanner:
        if not (yield from reasoning(self._text, closings)):
            return Position.LINE_START
        self.reasoning_ended = True
        return (yield from blank(self._text))


@lru_cache(maxsize=64)  # by identity: the names of a toolset stay the same
def _tags_and_tokens(names: ToolNames) -> tuple[Tags, tuple[str, ...], frozenset[str]]:
    """What opens a block; all tags and tokens that are known by heart, the longest first; how these begin."""
    tags = Tags(names)
    closings = [closing for closing in REASONING.values() if closing not in AMBIGUOUS]
    known = {*REASONING, *tags.literal, *closings, *SILENT}
    if names:
        known |= LEFTOVER | LEFTOVER_LINES
    heads = frozenset(tag[:2] for tag in known)
    return tags, tuple(sorted(known, key=len, reverse=True)), heads


def split(text: str, names: Collection[str] = (), *, reasoning_open: bool = False) -> list[Event]:
    """The events of a whole reply; one that closes reasoning it never opened is split as such."""
    splitter = Splitter(names, reasoning_open=reasoning_open)
    events = merge_events([*splitter.feed(text), *splitter.close()])
    return split(text, names, reasoning_open=True) if splitter.unopened_reasoning else events
