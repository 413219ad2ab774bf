"""Scanners for JSON without a fence that is a call or may be one.

JSON that is followed by the rest of a sentence is quoted, not called.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from emulator.reading.blocks import take_value
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
from emulator.reading.named_calls import match_header, plain_header_length, scan_named_calls
from emulator.reading.openings import match_json, names_call
from emulator.reading.text_buffer import HEAD, HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames

#: Text that continues the line after a value: the value is then part of a sentence, or its result follows.
#: Words that begin another message do not count.
_ROLES = "assistant|user|system|tool|observation|commentary|analysis|final|json|function|call"
_CONTINUATION = re.compile(
    rf"(?:[,(][ \t]*|(?![A-ZÀ-Þ]))(?!(?:{_ROLES})\b)[^\W\d_]|[-=]>|[–—→]|:[ \t]*[\w{{\[]"
)
_PARTIAL_CONTINUATION = re.compile(r"(?:[,:(][ \t]*|[-=]|[a-z]{1,12})\Z")


def quoted_value_length(
    text: TextBuffer, names: ToolNames, start: int = 0
) -> Generator[None, None, int]:
    """Return the length of the bracketed value that begins at offset ``start`` if a sentence
    continues after it.

    Takes nothing. Returns 0 if no sentence continues, or if the value is incomplete or too long to
    buffer.
    """
    length = yield from _value_end(text, start)
    if length is None:
        return 0
    while True:
        following = text.text[text.at + length : text.at + length + HEAD]
        whole = text.final or len(following) == HEAD
        rest = following.lstrip(" \t")
        may_go_on = not rest or _PARTIAL_CONTINUATION.match(rest)
        if _CONTINUATION.match(rest) and (whole or not may_go_on):
            verdict, _ = match_header(rest, whole, names)  # another call is not a sentence
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


def scan_json_line(text: TextBuffer, names: ToolNames) -> Scanner:
    """Scan JSON at the start of a line that is a call, unless a sentence continues after it."""
    quoted_length = yield from quoted_value_length(text, names)
    if quoted_length:
        yield Text(text.take(quoted_length))
        return Position.MID_LINE
    return (yield from scan_json_calls(text, names))


def scan_named_line(text: TextBuffer, names: ToolNames) -> Scanner:
    """Scan a name and its JSON at the start of a line. Without further signs of a call, a sentence
    after them makes them prose.
    """
    head, whole = text.head()
    header = plain_header_length(head, whole, names)
    quoted_length = (yield from quoted_value_length(text, names, header)) if header else 0
    if quoted_length:
        yield Text(text.take(quoted_length))
        return Position.MID_LINE
    return (yield from scan_named_calls(text, names))


#: Characters allowed between two JSON values that are calls.
_BETWEEN = re.compile(r"[\s,;\]}]*")


def scan_json_calls(text: TextBuffer, names: ToolNames) -> Scanner:
    """Scan JSON that is certainly a call, and the calls that follow it."""
    yield BlockStart("json", "")
    more = True
    while more:
        if not (yield from take_value(text)):
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START
        more = yield from _next_call(text, names)
    head, _ = text.head()
    extra = len(head) - len(head.lstrip("]}"))  # surplus brackets
    yield BlockEnd(text.take(extra), closed=True)
    return Position.MID_LINE


def _next_call(text: TextBuffer, names: ToolNames) -> Generator[Event | None, None, bool]:
    """Return True if another call follows; the text before it then belongs to the block."""
    while True:
        head, whole = text.head()
        between = _BETWEEN.match(head)
        length = between.end() if between else 0
        if length < len(head):
            verdict = match_json(head[length:], whole, names)
            if verdict is Verdict.YES:
                if (yield from quoted_value_length(text, names, length)):
                    return False
                yield BlockDelta(head[:length], text.take(length))
                return True
            if verdict is not Verdict.MAYBE:
                return False
        elif whole:
            return False
        yield None


def scan_possible_json(text: TextBuffer, names: ToolNames, *, midline: bool) -> Scanner:
    """Scan JSON that is a call only if its content confirms it, and within a line also the text
    after it.
    """
    end = yield from _value_end(text)
    if end is None:
        window, _ = text.head(HOLD)
        scanned = len(window)
        is_call = scanned < HOLD and (midline or names_call(window, names))  # cut off inside it
    else:
        scanned = end
        is_call = names_call(text.head(end)[0], names)
        if midline and is_call:
            is_call, scanned = yield from _calls_end(text, names, end)
            if is_call:
                return (yield from scan_json_calls(text, names))
    raw = text.take(scanned)
    if not is_call:
        yield Text(raw)
        return Position.MID_LINE
    yield BlockStart("json", "")
    yield BlockDelta(raw, raw)
    yield BlockEnd("", closed=end is not None, at_reply_end=end is None)
    return Position.MID_LINE


def _calls_end(
    text: TextBuffer, names: ToolNames, end: int
) -> Generator[Event | None, None, tuple[bool, int]]:
    """Return whether no words follow the calls in the line after ``end``, and the offset after them."""
    while True:
        head = text.text[text.at + end : text.at + end + HEAD]
        whole = text.final or len(head) == HEAD
        line, newline, _ = head.partition("\n")
        rest = line.lstrip(" \t\r,;")
        gap = len(line) - len(rest)
        verdict = match_json(head[gap:], whole, names) if rest[:1] in ("{", "[") else Verdict.NO
        if verdict is Verdict.YES:
            following = yield from _value_end(text, end + gap)
            if following is None or not names_call(text.head(following)[0][end + gap :], names):
                return False, end
            end = following
        elif verdict is Verdict.NO and (rest or newline or whole):
            return line.strip()[:1] in ("", "<"), end
        else:
            yield None
