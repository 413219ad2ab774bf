"""Scanners for blocks without a fence: tags, ReAct, YAML, JSON values, bare code."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from itertools import pairwise

from emulator.reading.bare_code import BareCode, LineKind, is_list_of_calls, is_python
from emulator.reading.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Position,
    Scanner,
    Text,
    Verdict,
)
from emulator.reading.lexing import JsonScan
from emulator.reading.tags import SILENT, Tag
from emulator.reading.text_buffer import HEAD, HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames

# ---------------------------------------------------------------------------- tags


def scan_tagged(text: TextBuffer, tag: Tag) -> Scanner:
    """Scan from the opening tag to its closing tag. A closing tag inside a value does not count."""
    opening = text.take(len(tag.opening))
    yield BlockStart(tag.dialect, opening if tag.framed else "")
    if not tag.framed:
        yield BlockDelta(opening, opening)
    if tag.is_open and (yield from _take_opening_tag(text)):
        yield BlockEnd("", closed=True)
        return Position.MID_LINE
    body = tag.body()
    while True:
        before, closing = text.closing(tag.closings)
        if before:
            raw = text.take(before)
            body.feed(raw)
            yield BlockDelta(raw, raw)
        if closing is not None:
            following = text.text[text.at + len(closing) : text.at + len(closing) + HOLD]
            verdict = body.closes(following, final=text.final or len(following) == HOLD)
            if verdict is Verdict.MAYBE:
                yield None
                continue
            if verdict is Verdict.NO:
                raw = text.take(len(closing))
                body.feed(raw)
                yield BlockDelta(raw, raw)
                continue
        if closing == tag.opening:  # written instead of the closing tag; opens the next block
            yield BlockEnd("", closed=True)
            return Position.LINE_START
        if closing is not None:
            text.take(len(closing))
            if not tag.framed:
                yield BlockDelta(closing, closing)
            yield BlockEnd(closing if tag.framed else "", closed=True)
            return Position.MID_LINE
        if text.final:
            yield BlockEnd("", closed=tag.endless and body.whole, at_reply_end=True)
            return Position.LINE_START
        yield None


_IN_TAG = re.compile(r"[\"'<>{]")
_QUOTES_END = {quote: re.compile(quote) for quote in "\"'"}


def _take_opening_tag(text: TextBuffer) -> Generator[Event | None, None, bool]:
    """Take the attributes of an opening tag. Returns True if it closes itself: ``city="Oslo"/>``.

    Takes nothing if the tag does not end, or if what follows is no attribute.
    """
    quote, seen = "", 0
    while True:
        mark = (_QUOTES_END[quote] if quote else _IN_TAG).search(text.text, text.at + seen)
        if mark is None:
            if text.final:
                return False
            seen = len(text)
            yield None
            continue
        seen = mark.end() - text.at
        if mark.group() == ">" and not quote:
            raw = text.take(seen)
            yield BlockDelta(raw, raw)
            return raw.endswith("/>")
        if mark.group() in "<{":
            return False
        quote = "" if quote else mark.group()


def scan_leftover(text: TextBuffer, token: str) -> Scanner:
    """Yield a fragment of a call as a block that no reader accepts, so that the model is asked
    about it.
    """
    yield BlockStart("leftover", "")
    yield BlockDelta(token, text.take(len(token)))
    yield BlockEnd("", closed=True)
    return Position.MID_LINE


# ---------------------------------------------------------------------------- ReAct and YAML

_REACT_ENDS = re.compile(r"[ \t*]*(?:Observation|Thought|Final Answer|Question)\b", re.IGNORECASE)
_YAML_LINE = re.compile(r"\s+\S|- |[\w\-]+:(?:\s|\Z)|#")

#: Dialect -> test of whether another line belongs to the block.
LINE_BLOCKS: dict[str, Callable[[str], bool]] = {
    "react": lambda line: not _REACT_ENDS.match(line),
    "yaml": lambda line: bool(_YAML_LINE.match(line)),
}


def scan_lines(text: TextBuffer, dialect: str) -> Scanner:
    """Scan a block that continues as long as its lines have the dialect's form."""
    belongs = LINE_BLOCKS[dialect]
    if dialect == "yaml" and not (yield from _continues_as_yaml(text)):
        yield Text(text.take(len(text.line() or "")))
        return Position.LINE_START
    yield BlockStart(dialect, "")
    first = True
    while True:
        line = yield from text.next_line()
        if line is None or not (first or belongs(line)):
            yield BlockEnd("", closed=True, at_reply_end=line is None)
            return Position.LINE_START
        first = False
        yield BlockDelta(line, text.take(len(line)))


def _continues_as_yaml(text: TextBuffer) -> Generator[None, None, bool]:
    """Return True if the next line may be YAML, is blank or does not exist; False if it is prose."""
    first = yield from text.next_line()
    second = yield from text.next_line(len(first or ""))
    return second is None or not second.strip() or bool(_YAML_LINE.match(second))


# ---------------------------------------------------------------------------- JSON


def take_value(text: TextBuffer) -> Generator[Event | None, None, bool]:
    """Take the value in brackets that begins here. Returns False if the reply ends inside it."""
    scan = JsonScan()
    while True:
        end = scan.feed(text.text, text.at)
        raw = text.take((len(text.text) if end is None else end) - text.at)
        yield BlockDelta(raw, raw)
        if end is not None or text.final:
            return end is not None
        yield None


# ---------------------------------------------------------------------------- bare code


_MESSAGE_END = re.compile(rf"(?:{'|'.join(map(re.escape, SILENT))})\s*\Z")


def scan_code(text: TextBuffer, names: ToolNames) -> Scanner:
    """Scan lines that may be Python. They are buffered until one calls a tool, and become prose if
    none does.
    """
    bare = BareCode(names)
    tested = 0  # characters that are buffered and were tested
    started = False
    while True:
        lists = [] if bare.open else (yield from _lists_before_words(text, tested, names))
        if lists:
            if started:
                yield BlockEnd("", closed=True)
            return (yield from _scan_lists(text, lists))
        line = yield from _code_line(text, tested, bare)
        if line is None or tested + len(line) >= HOLD:
            break
        ended = _MESSAGE_END.search(line)
        line = line[: ended.start()] if ended else line
        kind = bare.take(line)
        tested += len(line)
        if kind is LineKind.CALL or (kind is LineKind.CODE and started):
            yield from _code_lines(text, tested, started=started)
            started, tested = True, 0
        elif kind is LineKind.PROSE:
            if started:
                yield BlockEnd("", closed=True)
            yield Text(text.take(tested - len(bare.logical)))
            if "\n" not in bare.logical[:-1]:
                return Position.LINE_START_NOT_CODE  # it may still begin something else
            yield Text(text.take(len(bare.logical)))
            return Position.LINE_START
        if ended:
            line = ""
            break
    return (yield from _code_ends(text, tested, line, bare, started=started))


def _code_line(text: TextBuffer, after: int, bare: BareCode) -> Generator[None, None, str | None]:
    """Wait for the line that begins ``after`` characters ahead, or for a beginning that can only be prose.

    Returns None at the end of the reply.
    """
    while (line := text.line(after)) is None and not text.final:
        start = text.at + after
        if bare.is_prose_start(text.text[start : start + HEAD]):
            return text.text[start:]
        yield None
    return line


#: What may follow a list in its line without being words.
_NO_WORDS = re.compile(r"[ \t\r,;]*(?P<end>[\n#]|\Z)")
_SURPLUS = "])}"
_OPERATOR = re.compile(r"[ \t]*[^\w\s\"'`]")
_BETWEEN_LISTS = re.compile(r"[ \t,;]{0,40}")

_Span = tuple[int, int]


def _lists_before_words(
    text: TextBuffer, start: int, names: ToolNames
) -> Generator[None, None, list[_Span]]:
    """Return the lists of calls with which the line at offset ``start`` begins, if words follow them.

    A list ends at its own bracket, whatever quotes follow: ``[f(a="x")]I'm looking``. Returns none
    if the line is Python as a whole. Takes nothing.
    """
    lists: list[_Span] = []
    at = start
    while (found := (yield from _list_of_calls(text, at, names))) is not None:
        lists.append(found)
        at = found[1]
    while lists:
        rest = text.text[text.at + at : text.at + at + HEAD]
        ends = _NO_WORDS.match(rest)
        if ends is None:
            if _OPERATOR.match(rest):
                line = yield from text.next_line(at)
                if is_python(text.text[text.at + start : text.at + at] + (line or ""), names):
                    return []
            return lists
        if ends["end"] or text.final or len(rest) == HEAD:
            return lists if len(lists) > 1 else []
        yield None
    return []


def _list_of_calls(
    text: TextBuffer, at: int, names: ToolNames
) -> Generator[None, None, _Span | None]:
    """Return the start and the end of the list of calls that follows offset ``at`` in its line, or None."""
    while True:
        gap = _BETWEEN_LISTS.match(text.text, text.at + at)
        start = gap.end() - text.at if gap else at
        if start < len(text) or text.final:
            break
        yield None
    if not text.text.startswith("[", text.at + start):
        return None
    scan, scanned, searched = JsonScan(code=True), start, start
    while True:
        # After a bracket no cut is inside a triple quote.
        stop = text.text.rfind("]", text.at + searched, text.at + HOLD) + 1
        end = scan.feed(text.text, text.at + scanned, stop) if stop else None
        if end is not None:
            source = text.text[text.at + start : end]
            return (start, end - text.at) if is_list_of_calls(source, names) else None
        searched = min(len(text), HOLD)
        scanned = stop - text.at if stop else scanned
        if text.final or searched == HOLD:
            return None
        yield None


def _scan_lists(text: TextBuffer, lists: list[_Span]) -> Scanner:
    """Take lists of calls as the lines of one block; the text of a link is prose:
    ``[f(a=1)](https://...)``.
    """
    end = lists[-1][1]
    if text.text.startswith("(", text.at + end):
        yield Text(text.take(end))
        return Position.MID_LINE
    yield Text(text.take(lists[0][0]))
    yield BlockStart("python", "")
    for (start, list_end), (following, _) in pairwise([*lists, (end, end)]):
        raw = text.take(following - start)
        yield BlockDelta(f"{raw[: list_end - start]}\n", raw)
    surplus = text.take(1) if text.head(1)[0] in _SURPLUS else ""
    yield BlockEnd(surplus, closed=True)
    return Position.MID_LINE


def _code_lines(
    text: TextBuffer, count: int, *, started: bool
) -> Generator[Event | None, None, None]:
    if not started:
        yield BlockStart("python", "")
    raw = text.take(count)
    yield BlockDelta(raw, raw)


def _code_ends(
    text: TextBuffer, tested: int, line: str | None, bare: BareCode, *, started: bool
) -> Scanner:
    """Finish when the reply has ended (no `line`) or the buffered code exceeds HOLD."""
    cut_off = line is None and bare.open
    is_whole = cut_off and bare.ends_with_calls()
    if is_whole or (cut_off and bare.ends_inside_call()):
        yield from _code_lines(text, tested, started=started)
        started, tested = True, 0
    if started:
        yield BlockEnd("", closed=is_whole or not bare.open, at_reply_end=line is None)
    yield Text(text.take(tested + len(line or "")))
    return Position.LINE_START
