"""What stands inside a block, and where it ends: one scanner for each way to begin one.

A scanner is a generator over the incoming text: it yields events, or None when it needs more
text, and returns what the splitter goes on with. Whatever it decides depends on the text alone,
never on where it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from enum import Enum, auto

from emulator.bare import BareCode, Kind
from emulator.events import BlockDelta, BlockEnd, BlockStart, Event, Text
from emulator.incoming import HOLD, Incoming
from emulator.lexing import JsonScan, PythonScan
from emulator.openings import FENCES, Fence, Tag, fence_in, json_opens, names_a_call, sniff
from emulator.bare import Verdict
from emulator.written import WrittenNames


class After(Enum):
    """Where in the prose the splitter stands after a block."""

    LINE = auto()  # at the beginning of a line, or of something like one
    LINE_NOT_CODE = auto()  # ... of which is known that it is no code
    PROSE = auto()  # within a line


Scanner = Generator[Event | None, None, After]


# ---------------------------------------------------------------------------- tags


def tagged(text: Incoming, tag: Tag) -> Scanner:
    """From the opening tag to its closing."""
    opening = text.take(len(tag.opening))
    yield BlockStart(tag.dialect, opening if tag.framed else "")
    if not tag.framed:
        yield BlockDelta(opening, opening)
    while True:
        before, closing = text.closing(tag.closings)
        raw = text.take(before)
        yield BlockDelta(raw, raw)
        if closing == tag.opening:  # written where the closing should be; opens the next block
            yield BlockEnd("", closed=True)
            return After.LINE
        if closing is not None:
            text.take(len(closing))
            if not tag.framed:
                yield BlockDelta(closing, closing)
            yield BlockEnd(closing if tag.framed else "", closed=True)
            return After.PROSE
        if text.final:
            yield BlockEnd("", closed=tag.endless)
            return After.LINE
        yield None


# ---------------------------------------------------------------------------- fences


def fenced(text: Incoming, fence: Fence, names: WrittenNames) -> Scanner:
    """From the opening fence on; the first line of code says what the code is."""
    text.take(len(fence.raw))
    blank = 0
    while True:
        line = text.line(blank)
        if line is not None and (line.strip() or blank >= HOLD):
            break
        if line is None and text.final:
            break
        if line is None:
            yield None
        else:
            blank += len(line)
    empty = line is None or _closing_fence(line, fence) is not None
    dialect = None if empty else sniff(line or "", fence.language, names)
    if dialect is None:
        yield Text(fence.raw)
        return (yield from _documentation(text, fence))
    yield BlockStart(dialect, fence.raw)
    return (yield from _fenced_code(text, fence, names, lexed=dialect == "python"))


def _closing_fence(line: str, fence: Fence) -> int | None:
    """Where the closing fence in `line` ends, if the line begins with one."""
    match = re.match(rf"[ \t]*{re.escape(fence.run[0])}{{{len(fence.run)},}}", line)
    return match.end() if match else None


def _documentation(text: Incoming, fence: Fence) -> Scanner:
    """A fence that is prose: nothing begins inside it."""
    begins = True
    while True:
        line = text.line()
        if line is None:
            part = text.text[text.at :]
            if part and not (begins and not part.lstrip(" \t" + fence.run[0])):
                begins = False
                yield Text(text.take(len(part)))
            if text.final:
                return After.LINE
            yield None
            continue
        end = _closing_fence(line, fence) if begins else None
        if end is not None:
            yield Text(text.take(end))
            return After.PROSE
        begins = line.endswith("\n")
        yield Text(text.take(len(line)))


def _fenced_code(text: Incoming, fence: Fence, names: WrittenNames, *, lexed: bool) -> Scanner:
    scan = PythonScan() if lexed else None
    begins = not fence.code
    while True:
        line = text.line()
        if line is None:
            if text.final:
                yield BlockEnd("", closed=False)
                return After.LINE
            yield None
            continue
        in_string = scan is not None and scan.quote
        end = _closing_fence(line, fence) if begins and not in_string else None
        if end is None:
            glued = _glued_fence(line, fence, scan)
            code = line if glued is None else line[:glued]
            dedented = _dedented(code, fence.indent) if begins else code
            yield BlockDelta(dedented, text.take(len(code)))
            begins = line.endswith("\n")
            if glued is None:
                continue
            line, end = line[glued:], len(fence.run)
        rest = line[end:].strip()
        if rest and rest.lower() in FENCES and fence_in(line, names):
            yield BlockEnd("", closed=True)  # the next fence opens, this one forgot to close
            return After.LINE
        closing = text.take(end if rest else len(line))
        yield BlockEnd(closing, closed=True)
        return After.LINE if closing.endswith("\n") else After.PROSE


def _glued_fence(line: str, fence: Fence, scan: PythonScan | None) -> int | None:
    """Where a closing fence stands at the end of a line of code."""
    ticks = len(fence.run) if fence.run[0] == "`" else 0
    if scan is not None:
        return scan.feed(line, fence=ticks)
    code = line.rstrip()
    glued = ticks and code.endswith(fence.run) and not code.startswith(fence.run)
    return len(code) - ticks if glued else None


def _dedented(line: str, indent: str) -> str:
    margin = len(line) - len(line.lstrip(" \t"))
    return line[min(margin, len(indent)) :]


# ---------------------------------------------------------------------------- JSON

#: What may stand between two JSON values that are calls.
_BETWEEN = re.compile(r"[\s,;\]}]*")


def json_calls(text: Incoming, names: WrittenNames) -> Scanner:
    """JSON that is a call for sure, and the calls that follow it."""
    yield BlockStart("json", "")
    more = True
    while more:
        scan = JsonScan()
        end = None
        while end is None:
            end = scan.feed(text.text, text.at)
            raw = text.take((len(text.text) if end is None else end) - text.at)
            yield BlockDelta(raw, raw)
            if end is None and text.final:
                yield BlockEnd("", closed=False)
                return After.LINE
            if end is None:
                yield None
        more = yield from _another(text, names)
    head, _ = text.head()
    extra = len(head) - len(head.lstrip("]}"))  # brackets too many
    yield BlockEnd(text.take(extra), closed=True)
    return After.PROSE


def _another(text: Incoming, names: WrittenNames) -> Generator[Event | None, None, bool]:
    """Whether one more call follows; what stands before it belongs to the block."""
    while True:
        head, whole = text.head()
        between = _BETWEEN.match(head)
        length = between.end() if between else 0
        if length < len(head):
            found = json_opens(head[length:], whole, names)
            if found.verdict is Verdict.YES and found.sure:
                yield BlockDelta(head[:length], text.take(length))
                return True
            if found.verdict is not Verdict.MAYBE:
                return False
        elif whole:
            return False
        yield None


def json_perhaps(text: Incoming, names: WrittenNames, *, midline: bool) -> Scanner:
    """JSON that is a call only if its end, or within a line what follows it, says so."""
    scan, scanned, end = JsonScan(), 0, None
    while end is None:
        held, whole = text.head(HOLD)
        end = scan.feed(held, scanned)
        scanned = len(held)
        if end is None and whole:
            break
        if end is None:
            yield None
    if end is None:
        is_call = midline and scanned < HOLD  # the reply ends inside it
    else:
        scanned = end
        follows = yield from _follows(text, end)
        is_call = names_a_call(text.head(end)[0], names)
        is_call = is_call and (not midline or follows in ("", "<"))
    raw = text.take(scanned)
    if not is_call:
        yield Text(raw)
        return After.PROSE
    yield BlockStart("json", "")
    yield BlockDelta(raw, raw)
    yield BlockEnd("", closed=end is not None)
    return After.PROSE


def _follows(text: Incoming, end: int) -> Generator[Event | None, None, str]:
    """The first character after `end` in its line that is no space; "" if there is none."""
    while True:
        held, whole = text.head(HOLD)
        line, newline, _ = held[end:].partition("\n")
        rest = line.lstrip(" \t\r")
        if rest or newline or whole:
            return rest[:1]
        yield None


# ---------------------------------------------------------------------------- ReAct and YAML

_REACT_ENDS = re.compile(r"[ \t*]*(?:Observation|Thought|Final Answer|Question)\b", re.IGNORECASE)
_YAML_LINE = re.compile(r"\s+\S|- |[\w\-]+:(?:\s|\Z)|#")

#: Dialect -> whether a further line belongs to the block.
LINE_BLOCKS: dict[str, Callable[[str], bool]] = {
    "react": lambda line: not _REACT_ENDS.match(line),
    "yaml": lambda line: bool(_YAML_LINE.match(line)),
}


def lines(text: Incoming, dialect: str) -> Scanner:
    """A block that lasts as long as its lines look like it."""
    yield BlockStart(dialect, "")
    belongs = LINE_BLOCKS[dialect]
    first = True
    while True:
        line = text.line()
        if line is None and not text.final:
            yield None
            continue
        if line is None or not (first or belongs(line)):
            yield BlockEnd("", closed=True)
            return After.LINE
        first = False
        yield BlockDelta(line, text.take(len(line)))


# ---------------------------------------------------------------------------- bare code


def code(text: Incoming, names: WrittenNames) -> Scanner:
    """Lines that may be Python: held until one of them calls a tool, and given back if none does."""
    bare = BareCode(names)
    looked = 0  # characters that are held and were looked at
    began = False
    while True:
        line = text.line(looked)
        if line is None and not text.final:
            line = text.text[text.at + looked :]
            if not bare.hopeless(line):
                yield None
                continue
        if line is None or looked + len(line) >= HOLD:
            break
        kind = bare.take(line)
        looked += len(line)
        if kind is Kind.CALL or (kind is Kind.CODE and began):
            if not began:
                yield BlockStart("python", "")
                began = True
            raw = text.take(looked)
            looked = 0
            yield BlockDelta(raw, raw)
        elif kind is Kind.PROSE:
            if began:
                yield BlockEnd("", closed=True)
            yield Text(text.take(looked - len(bare.logical)))
            if "\n" not in bare.logical[:-1]:
                return After.LINE_NOT_CODE  # it may still begin something else
            yield Text(text.take(len(bare.logical)))
            return After.LINE
    # The reply has ended, or more would have to be held than may be.
    if line is None and bare.open and bare.end() is Kind.CALL:
        if not began:
            yield BlockStart("python", "")
            began = True
        raw = text.take(looked)
        looked = 0
        yield BlockDelta(raw, raw)
    if began:
        yield BlockEnd("", closed=not bare.open)
    yield Text(text.take(looked + len(line or "")))
    return After.LINE
