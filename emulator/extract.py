"""Split a reply, as it streams in, into reasoning, prose and blocks that may be a program.

Sans-IO: text in, events out; the events are the same for every way to cut the text (see
`events.merged`), and their `raw` joined gives back the reply. Of the tools it knows the names
alone. Whether a block is a program is for the readers and the pipeline to say; a block that is
none can be given back as prose, byte for byte.

Prose goes out at once; held back is only what may begin a block or a tag, `HOLD` characters at
most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from emulator.bare import BareCode, Kind, Verdict
from emulator.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merged,
)
from emulator.lexing import JsonScan, PythonScan
from emulator.openings import (
    FENCES,
    LINES,
    REASONING,
    Fence,
    Tag,
    fence_in,
    json_opens,
    names_a_call,
    sniff,
    tags_for,
)
from emulator.written import WrittenNames

__all__ = [
    "BlockDelta",
    "BlockEnd",
    "BlockStart",
    "Event",
    "Reasoning",
    "Splitter",
    "Text",
    "merged",
    "split",
]

#: Characters of a line, a value or a stretch of code that may be held back undecided.
HOLD = 1 << 16
#: Characters within which the beginning of a line says what the line may be.
HEAD = 400
#: A longer run of backticks is decoration.
RUN = 64

#: Where prose may stop being prose; `f` only where it may begin "functools[".
_POINT = re.compile(r"[\n`<\[{]|f(?=\Z|u(?:\Z|n(?:\Z|c)))")
_QUOTES = "`'\"“‘"
#: What may stand between two JSON values that are calls.
_BETWEEN = re.compile(r"[\s,;\]}]*")
_REACT_ENDS = re.compile(r"[ \t*]*(?:Observation|Thought|Final Answer|Question)\b", re.IGNORECASE)
_YAML_LINE = re.compile(r"\s+\S|- |[\w\-]+:(?:\s|\Z)|#")


class Splitter:
    """One reply. `names`: the offered functions, as Python names or written -> Python name.

    `reasoning_open`: the prompt's template has opened the reasoning already. After `close`,
    `unopened` says that a `</think>` came which nothing had opened: all text before it was
    reasoning (R1's templates do that), and the next reply of that model should be split with
    `reasoning_open`.
    """

    def __init__(self, names: Collection[str] = (), *, reasoning_open: bool = False) -> None:
        self._names = WrittenNames(names)
        self._tags = tags_for(names)
        # "<|end|>" ends other things as well; alone it says nothing of reasoning.
        closings = [closing for closing in REASONING.values() if closing != "<|end|>"]
        self._known = (*REASONING, *self._tags, *closings)
        self._heads = {tag[:2] for tag in self._known}
        self._longest = max(map(len, self._known))
        self._events: list[Event] = []
        self._text = ""  # undecided, from self._at on
        self._at = 0
        self._final = False
        # A state takes what it can decide; False means that it needs more text.
        self._state: Callable[[], bool] = (
            self._before_reasoning if reasoning_open else self._line
        )
        self._closings: tuple[str, ...] = tuple(REASONING.values())
        self._last = ""  # the last character that was decided
        self._inline = 0  # backticks that opened the code span we are in
        self._not_code = False  # the line at hand was judged already
        self._opened = reasoning_open
        # What the state at hand remembers.
        self._fence = Fence("", "", "", "")
        self._scan: PythonScan | None = None
        self._line_began = True
        self._blank = ""
        self._json = JsonScan()
        self._json_end: int | None = None
        self._midline = False
        self._looked = 0  # characters held that were looked at
        self._keeps: Callable[[str], bool] = bool
        self._first_line = True
        self._bare = BareCode(self._names)
        self._began = False  # the code at hand is a block already
        self._open = Tag("", "", ())
        self.unopened = False

    def feed(self, text: str) -> list[Event]:
        """What can be said now."""
        self._text = self._text[self._at :] + text
        self._at = 0
        while self._state():
            pass
        return self._drain()

    def close(self) -> list[Event]:
        """The rest; the reply has ended."""
        self._final = True
        while self._state():
            pass
        return self._drain()

    # -- the text at hand

    def _drain(self) -> list[Event]:
        events, self._events = merged(self._events), []
        return events

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += len(taken)
        self._last = taken[-1:] or self._last
        return taken

    def _left(self) -> int:
        return len(self._text) - self._at

    def _next_line(self, after: int = 0) -> str | None:
        """The line that begins `after` characters on: whole, or the reply's last, or HOLD of it."""
        start = self._at + after
        end = self._text.find("\n", start, start + HOLD)
        if end >= 0:
            return self._text[start : end + 1]
        if len(self._text) - start >= HOLD:
            return self._text[start : start + HOLD]
        return self._text[start:] or None if self._final else None

    def _say(self, event: Event) -> None:
        if event.raw or not isinstance(event, (Text, BlockDelta, Reasoning)):
            self._events.append(event)

    def _go(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    # -- prose

    def _line(self) -> bool:
        """At the beginning of a line of prose."""
        if not self._left():
            return False
        self._inline = 0
        if self._text[self._at] == "\n":
            self._say(Text(self._take(1)))
            return True
        head = self._text[self._at : self._at + HEAD]
        whole = self._final or len(head) == HEAD
        for what, opens in LINES:
            if what == "code" and self._not_code:
                continue
            found = opens(head, whole, self._names)
            if found.verdict is Verdict.MAYBE:
                return False
            if found.verdict is Verdict.YES:
                return self._begin(what, found.sure)
        self._not_code = False
        return self._go(self._prose)

    def _begin(self, what: str, sure: bool) -> bool:
        self._not_code = False
        match what:
            case "fence":
                line = self._text[self._at : self._at + HEAD].splitlines(keepends=True)[0]
                fence = fence_in(line, self._names)
                if fence is None:
                    return self._go(self._prose)
                return self._open_fence(fence)
            case "json":
                return self._open_json() if sure else self._hold_json(midline=False)
            case "react":
                self._keeps = lambda line: not _REACT_ENDS.match(line)
            case "yaml":
                self._keeps = lambda line: bool(_YAML_LINE.match(line))
            case _:
                self._bare = BareCode(self._names)
                self._looked = 0
                self._began = False
                return self._go(self._code)
        self._say(BlockStart(what, ""))
        self._first_line = True
        return self._go(self._lines)

    def _prose(self) -> bool:
        """Within a line of prose."""
        match = _POINT.search(self._text, self._at)
        self._say(Text(self._take((match.start() if match else len(self._text)) - self._at)))
        if match is None:
            return False
        match match.group():
            case "\n":
                self._say(Text(self._take(1)))
                return self._go(self._line)
            case "`":
                return self._backticks()
        tag = None if match.group() == "f" and self._last.isalnum() else self._tag()
        if tag is not None:
            return tag
        if match.group() in "{[" and not self._inline:
            head = self._text[self._at : self._at + HEAD]
            found = json_opens(head, self._final or len(head) == HEAD, self._names)
            if found.verdict is Verdict.MAYBE:
                return False
            if found.verdict is Verdict.YES and found.sure:
                return self._hold_json(midline=True)
        self._say(Text(self._take(1)))
        return True

    def _backticks(self) -> bool:
        """A run of backticks within a line: a code span begins or ends, or a fence begins late."""
        end = self._at
        while end < len(self._text) and self._text[end] == "`" and end - self._at < RUN:
            end += 1
        count = end - self._at
        if end == len(self._text) and count < RUN and not self._final:
            return False
        if not self._inline and 3 <= count < RUN:
            line = self._text[self._at : self._at + HEAD].partition("\n")
            info = line[0][count:].strip()
            known = re.fullmatch(r"[\w+#.\-]*", info) is not None
            if known and not line[1] and not self._final and len(line[0]) < HEAD:
                return False
            if known and line[1] and info.lower() in FENCES:
                fence = fence_in(line[0] + "\n", self._names)
                if fence is not None:
                    return self._open_fence(fence)
        if self._inline in (0, count):
            self._inline = 0 if self._inline else count
        self._say(Text(self._take(count)))
        return True

    def _tag(self) -> bool | None:
        """The tag that begins here is opened; None if none does; False if it may."""
        if self._inline:
            return None
        rest = self._text[self._at : self._at + self._longest]
        if len(rest) > 1 and rest[:2] not in self._heads:
            return None
        tag = next((tag for tag in self._known if rest.startswith(tag)), None)
        if tag is None:
            part = not self._final and any(known.startswith(rest) for known in self._known)
            return False if part else None
        mention = self._mentioned(tag)
        if mention is None:
            return False
        if mention:
            return None
        if tag in self._tags:
            return self._open_tag(self._tags[tag])
        self._say(Reasoning("", self._take(len(tag))))
        if tag in REASONING:
            self._opened = True
            self._closings = (REASONING[tag],)
            return self._go(self._before_reasoning)
        self.unopened |= not self._opened
        return self._go(self._after_reasoning)

    # -- reasoning

    def _before_reasoning(self) -> bool:
        """Newlines after the tag belong to it; so does a tag that the template gave already."""
        rest = self._text[self._at :]
        self._say(Reasoning("", self._take(len(rest) - len(rest.lstrip("\r\n")))))
        rest = self._text[self._at : self._at + self._longest]
        again = next((tag for tag in REASONING if rest.startswith(tag)), None)
        if again is not None:
            self._closings = (REASONING[again],)
            self._say(Reasoning("", self._take(len(again))))
            return True
        if not self._final and any(tag.startswith(rest) for tag in REASONING):
            return False
        return self._go(self._in_reasoning)

    def _in_reasoning(self) -> bool:
        end, closing = self._closing(self._closings)
        raw = self._take(end - self._at)
        self._say(Reasoning(raw, raw))
        if closing is None:
            return False
        mention = self._mentioned(closing)
        if mention is None:
            return False
        if mention:
            raw = self._take(len(closing))
            self._say(Reasoning(raw, raw))
            return True
        self._opened = True
        self._say(Reasoning("", self._take(len(closing))))
        return self._go(self._after_reasoning)

    def _mentioned(self, tag: str) -> bool | None:
        """Whether the tag at hand stands in quotes, and so is only spoken of; None: not known yet."""
        if not self._last or self._last not in _QUOTES:
            return False
        end = self._at + len(tag)
        if end == len(self._text) and not self._final:
            return None
        return self._text[end : end + 1] in _QUOTES and end < len(self._text)

    def _after_reasoning(self) -> bool:
        """Blank lines after the reasoning belong to its tag."""
        rest = self._text[self._at :]
        blank = len(rest) - len(rest.lstrip("\r\n"))
        self._say(Reasoning("", self._take(blank)))
        return self._go(self._line) if self._left() else False

    def _closing(self, closings: tuple[str, ...]) -> tuple[int, str | None]:
        """Where the first closing stands, and which; else up to where none can begin."""
        found = [(self._text.find(c, self._at), c) for c in closings]
        first = min(((at, c) for at, c in found if at >= 0), default=None)
        if first is not None:
            return first
        if self._final:
            return len(self._text), None
        longest = max(map(len, closings), default=1) - 1
        for start in range(max(self._at, len(self._text) - longest), len(self._text)):
            if any(c.startswith(self._text[start:]) for c in closings):
                return start, None
        return len(self._text), None

    # -- tags

    def _open_tag(self, tag: Tag) -> bool:
        opening = self._take(len(tag.opening))
        self._say(BlockStart(tag.dialect, opening if tag.framed else ""))
        if not tag.framed:
            self._say(BlockDelta(opening, opening))
        self._open = tag
        return self._go(self._in_tag)

    def _in_tag(self) -> bool:
        end, closing = self._closing(self._open.closings)
        raw = self._take(end - self._at)
        self._say(BlockDelta(raw, raw))
        if closing is None:
            if self._final:
                self._say(BlockEnd("", closed=self._open.endless))
                return self._go(self._line)
            return False
        if closing != self._open.opening:
            self._take(len(closing))
            if not self._open.framed:
                self._say(BlockDelta(closing, closing))
            self._say(BlockEnd(closing if self._open.framed else "", closed=True))
        else:
            self._say(BlockEnd("", closed=True))
        return self._go(self._line if closing == self._open.opening else self._prose)

    # -- fences

    def _open_fence(self, fence: Fence) -> bool:
        self._fence = fence
        self._take(len(fence.raw))
        self._blank = ""
        return self._go(self._fence_begins)

    def _fence_begins(self) -> bool:
        """After the opening line: the first line of code says what the code is."""
        line = self._next_line(len(self._blank))
        if line is not None and not line.strip() and len(self._blank) < HOLD:
            self._blank += line
            return True
        if line is None and not self._final:
            return False
        dialect = sniff(line or "", self._fence.language, self._names)
        if line is None or self._closes(line) is not None:  # nothing inside
            dialect = None
        if dialect is None:
            self._say(Text(self._fence.raw))
            self._line_began = True
            return self._go(self._quoted)
        self._say(BlockStart(dialect, self._fence.raw))
        self._scan = PythonScan() if dialect == "python" else None
        self._line_began = not self._fence.code
        return self._go(self._in_fence)

    def _closes(self, line: str) -> int | None:
        """Where the closing fence in `line` ends, if the line begins with one."""
        run = self._fence.run
        match = re.match(rf"[ \t]*{re.escape(run[0])}{{{len(run)},}}", line)
        return match.end() if match else None

    def _quoted(self) -> bool:
        """In a fence that is documentation: prose, but nothing begins here."""
        line = self._next_line()
        if line is None:
            part = self._text[self._at :]
            if not part or self._line_began and not part.lstrip(" \t" + self._fence.run[0]):
                return False
            self._line_began = False
            self._say(Text(self._take(len(part))))
            return False
        if self._line_began and self._closes(line) is not None:
            self._say(Text(self._take(self._closes(line) or 0)))
            return self._go(self._prose)
        self._line_began = line.endswith("\n")
        self._say(Text(self._take(len(line))))
        return True

    def _in_fence(self) -> bool:
        line = self._next_line()
        if line is None:
            if self._final:
                self._say(BlockEnd("", closed=False))
                return self._go(self._line)
            return False
        in_string = self._scan is not None and self._scan.quote
        end = self._closes(line) if self._line_began and not in_string else None
        if end is not None:
            return self._close_fence(line, end)
        glued = self._glued(line)
        code = line if glued is None else line[:glued]
        self._delta(code)
        self._line_began = line.endswith("\n")
        if glued is not None:
            return self._close_fence(line[glued:], len(self._fence.run))
        return True

    def _glued(self, line: str) -> int | None:
        """Where a closing fence stands at the end of a line of code."""
        run = self._fence.run
        if run[0] != "`":
            if self._scan is not None:
                self._scan.feed(line)
            return None
        if self._scan is not None:
            return self._scan.feed(line, fence=len(run))
        bare = line.rstrip()
        return len(bare) - len(run) if bare.endswith(run) and not bare.startswith(run) else None

    def _delta(self, raw: str) -> None:
        indent = self._fence.indent
        if self._line_began and indent:
            margin = len(raw) - len(raw.lstrip(" \t"))
            text = raw[min(margin, len(indent)) :]
        else:
            text = raw
        self._say(BlockDelta(text, self._take(len(raw))))

    def _close_fence(self, line: str, end: int) -> bool:
        rest = line[end:].strip()
        if rest and fence_in(line, self._names) and rest.lower() in FENCES:
            self._say(BlockEnd("", closed=True))  # the next block opens, this one forgot to close
            return self._go(self._line)
        if not rest:
            end = len(line)
        self._events.append(BlockEnd(self._take(end), closed=True))
        return self._go(self._line if line[:end].endswith("\n") else self._prose)

    # -- JSON outside of fences

    def _open_json(self) -> bool:
        self._json = JsonScan()
        self._say(BlockStart("json", ""))
        return self._go(self._in_json)

    def _in_json(self) -> bool:
        if not self._left():
            if self._final:
                self._say(BlockEnd("", closed=False))
                return self._go(self._line)
            return False
        end = self._json.feed(self._text, self._at)
        raw = self._take((len(self._text) if end is None else end) - self._at)
        self._say(BlockDelta(raw, raw))
        return True if end is None else self._go(self._after_json)

    def _after_json(self) -> bool:
        """The next value may belong to the block; brackets too many end it."""
        head = self._text[self._at : self._at + HEAD]
        whole = self._final or len(head) == HEAD
        between = _BETWEEN.match(head)
        length = between.end() if between else 0
        if length < len(head):
            found = json_opens(head[length:], whole, self._names)
            if found.verdict is Verdict.MAYBE:
                return False
            if found.verdict is Verdict.YES and found.sure:
                self._say(BlockDelta(head[:length], self._take(length)))
                self._json = JsonScan()
                return self._go(self._in_json)
        elif not whole:
            return False
        extra = len(head) - len(head.lstrip("]}"))
        self._say(BlockEnd(self._take(extra), closed=True))
        return self._go(self._prose)

    def _hold_json(self, *, midline: bool) -> bool:
        self._json = JsonScan()
        self._json_end = None
        self._looked = 0
        self._midline = midline
        return self._go(self._held_json)

    def _held_json(self) -> bool:
        """JSON that is a call only if its end, or what follows it, says so."""
        text = self._text[self._at : self._at + HOLD]
        if self._json_end is None:
            self._json_end = self._json.feed(text, self._looked)
            self._looked = len(text)
        end = self._json_end
        if end is None:
            if len(text) < HOLD and not self._final:
                return False
            is_call = self._midline and len(text) < HOLD
        else:
            line, newline, _ = text[end:].partition("\n")
            follows = line.lstrip(" \t\r")
            if not follows and not newline and len(text) < HOLD and not self._final:
                return False
            is_call = names_a_call(text[:end], self._names)
            if self._midline:
                is_call &= not follows or follows[0] == "<"
            text = text[:end]
        if not is_call:
            self._say(Text(self._take(len(text))))
            return self._go(self._prose)
        self._say(BlockStart("json", ""))
        self._say(BlockDelta(text, self._take(len(text))))
        self._say(BlockEnd("", closed=end is not None))
        return self._go(self._prose)

    # -- ReAct and YAML

    def _lines(self) -> bool:
        """A block that lasts as long as its lines look like it."""
        line = self._next_line()
        if line is None and not self._final:
            return False
        if line is None or not self._first_line and not self._keeps(line):
            self._say(BlockEnd("", closed=True))
            return self._go(self._line)
        self._first_line = False
        self._say(BlockDelta(line, self._take(len(line))))
        return True

    # -- code outside of fences

    def _code(self) -> bool:
        line = self._next_line(self._looked)
        if line is None and not self._final:
            partial = self._text[self._at + self._looked :]
            if not self._bare.hopeless(partial):
                return False
            line = partial
        if line is None or self._looked + len(line) >= HOLD:
            return self._code_ends(line or "")
        kind = self._bare.take(line)
        self._looked += len(line)
        if kind is Kind.CALL or kind is Kind.CODE and self._began:
            self._code_goes_on()
        elif kind is Kind.PROSE:
            return self._not_any_more()
        return True

    def _code_goes_on(self) -> None:
        if not self._began:
            self._say(BlockStart("python", ""))
        self._began = True
        raw = self._take(self._looked)
        self._looked = 0
        self._say(BlockDelta(raw, raw))

    def _not_any_more(self) -> bool:
        """The last logical line is prose; what was held before it is not part of a block."""
        logical = self._bare.logical
        if self._began:
            self._say(BlockEnd("", closed=True))
        self._say(Text(self._take(self._looked - len(logical))))
        if "\n" in logical[:-1]:
            self._say(Text(self._take(len(logical))))
        else:  # it may still begin something else
            self._not_code = True
        return self._go(self._line)

    def _code_ends(self, line: str) -> bool:
        """The reply has ended (no `line`), or the code is longer than may be held."""
        broken_off = self._bare.open
        if not line and broken_off and self._bare.end() is Kind.CALL:
            self._code_goes_on()
        if self._began:
            self._say(BlockEnd("", closed=not broken_off))
        self._say(Text(self._take(self._looked + len(line))))
        return self._go(self._line)


def split(text: str, names: Collection[str] = (), *, reasoning_open: bool = False) -> list[Event]:
    """The events of a whole reply; one that closes reasoning it never opened is split as such."""
    splitter = Splitter(names, reasoning_open=reasoning_open)
    events = merged([*splitter.feed(text), *splitter.close()])
    return split(text, names, reasoning_open=True) if splitter.unopened else events
