"""JSON without a fence that is a call, or may be one: where it ends, and whether it is only spoken of."""

from __future__ import annotations

import re
from collections.abc import Generator

from emulator.reading.blocks import bracketed_value
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Event, Text
from emulator.reading.lexing import JsonScan
from emulator.reading.named_calls import bare_header, named_calls, named_opens
from emulator.reading.openings import json_opens, names_a_call
from emulator.reading.scanner import Position, Scanner, Verdict
from emulator.reading.text_buffer import HEAD, HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames

#: What goes on behind a value in its line: then it is spoken of, or its result is told. Words that begin
#: a further message are none.
_ROLES = "assistant|user|system|tool|observation|commentary|analysis|final|json|function|call"
_GOES_ON = re.compile(
    rf"(?:[,(][ \t]*|(?![A-ZÀ-Þ]))(?!(?:{_ROLES})\b)[^\W\d_]|[-=]>|[–—→]|:[ \t]*[\w{{\[]"
)
_MAY_GO_ON = re.compile(r"(?:[,:(][ \t]*|[-=]|[a-z]{1,12})\Z")


def spoken_of(text: TextBuffer, names: ToolNames, start: int = 0) -> Generator[None, None, int]:
    """The length of the value in brackets that begins ``start`` characters on, if a sentence follows it.

    Nothing is taken. It is 0 for a value that is not spoken of, is cut off, or is too long to be held.
    """
    length = yield from _value_end(text, start)
    if length is None:
        return 0
    while True:
        following = text.text[text.at + length : text.at + length + HEAD]
        whole = text.final or len(following) == HEAD
        rest = following.lstrip(" \t")
        may_go_on = not rest or _MAY_GO_ON.match(rest)
        if _GOES_ON.match(rest) and (whole or not may_go_on):
            verdict, _ = named_opens(rest, whole, names)  # a further call is none
            if verdict is not Verdict.MAYBE:
                return length if verdict is Verdict.NO else 0
        elif whole or not may_go_on:
            return length if whole and rest[:1] in tuple(",:(-=") else 0
        yield None


def _value_end(text: TextBuffer, start: int = 0) -> Generator[None, None, int | None]:
    """Return the offset at which the value that begins at ``start`` ends, or None.

    None if the reply ends inside the value or the value extends beyond the first `HOLD` characters.
    """
    scan = JsonScan()
    while True:
        end = scan.feed(text.text, text.at + start, text.at + HOLD)
        if end is not None:
            return end - text.at
        if text.final or len(text) >= HOLD:
            return None
        start = len(text)
        yield None


def json_line(text: TextBuffer, names: ToolNames) -> Scanner:
    """JSON that begins a line and is a call, unless a sentence goes on behind it."""
    spoken = yield from spoken_of(text, names)
    if spoken:
        yield Text(text.take(spoken))
        return Position.MID_LINE
    return (yield from json_calls(text, names))


def named_line(text: TextBuffer, names: ToolNames) -> Scanner:
    """A name and its JSON that begin a line: calls, unless only the name says so and a sentence goes on."""
    head, whole = text.head()
    header = bare_header(head, whole, names)
    spoken = (yield from spoken_of(text, names, header)) if header else 0
    if spoken:
        yield Text(text.take(spoken))
        return Position.MID_LINE
    return (yield from named_calls(text, names))


#: What may stand between two JSON values that are calls.
_BETWEEN = re.compile(r"[\s,;\]}]*")


def json_calls(text: TextBuffer, names: ToolNames) -> Scanner:
    """JSON that is a call for sure, and the calls that follow it."""
    yield BlockStart("json", "")
    more = True
    while more:
        if not (yield from bracketed_value(text)):
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START
        more = yield from _another(text, names)
    head, _ = text.head()
    extra = len(head) - len(head.lstrip("]}"))  # brackets too many
    yield BlockEnd(text.take(extra), closed=True)
    return Position.MID_LINE


def _another(text: TextBuffer, names: ToolNames) -> Generator[Event | None, None, bool]:
    """Whether one more call follows; what stands before it belongs to the block."""
    while True:
        head, whole = text.head()
        between = _BETWEEN.match(head)
        length = between.end() if between else 0
        if length < len(head):
            found = json_opens(head[length:], whole, names)
            if found.verdict is Verdict.YES and found.sure:
                if (yield from spoken_of(text, names, length)):
                    return False
                yield BlockDelta(head[:length], text.take(length))
                return True
            if found.verdict is not Verdict.MAYBE:
                return False
        elif whole:
            return False
        yield None


def json_perhaps(text: TextBuffer, names: ToolNames, *, midline: bool) -> Scanner:
    """JSON that is a call only if its end, or within a line what follows it, says so."""
    end = yield from _value_end(text)
    if end is None:
        window, _ = text.head(HOLD)
        scanned = len(window)
        is_call = scanned < HOLD and (midline or names_a_call(window, names))  # cut off inside it
    else:
        scanned = end
        follows = yield from _follows(text, end)
        is_call = names_a_call(text.head(end)[0], names)
        is_call = is_call and (not midline or follows in ("", "<"))
    raw = text.take(scanned)
    if not is_call:
        yield Text(raw)
        return Position.MID_LINE
    yield BlockStart("json", "")
    yield BlockDelta(raw, raw)
    yield BlockEnd("", closed=end is not None, at_reply_end=end is None)
    return Position.MID_LINE


def _follows(text: TextBuffer, end: int) -> Generator[Event | None, None, str]:
    """The first character after `end` in its line that is no space; "" if there is none."""
    while True:
        window, whole = text.head(HOLD)
        line, newline, _ = window[end:].partition("\n")
        rest = line.lstrip(" \t\r")
        if rest or newline or whole:
            return rest[:1]
        yield None
