"""Scanners for the content of a fence: code for a reader, or documentation.

A fence inside a triple-quoted string closes nothing. Models sometimes forget to close a fence.
"""

from __future__ import annotations

from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Position, Scanner, Text
from emulator.reading.lexing import PythonScan
from emulator.reading.openings import FENCES, Fence, detect_dialect, parse_fence
from emulator.reading.text_buffer import HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames


def scan_fence(text: TextBuffer, fence: Fence, names: ToolNames) -> Scanner:
    """Scan from the opening fence. The first line that is not blank decides the dialect."""
    text.take(len(fence.raw))
    blank_length = 0
    while True:
        line = yield from text.next_line(blank_length)
        if line is None or line.strip() or blank_length >= HOLD:
            break
        blank_length += len(line)
    empty = line is None or closing_fence(line, fence) is not None
    info = fence.raw.strip().lstrip("`~")
    dialect = None if empty else detect_dialect(line or "", fence.language, names, info)
    if dialect is None:
        yield Text(fence.raw)
        return (yield from _documentation(text, fence))
    yield BlockStart(dialect, fence.raw)
    return (yield from _fenced_code(text, fence, names, lexed=dialect == "python"))


def closing_fence(line: str, fence: Fence) -> int | None:
    """Where the closing fence in `line` ends, if the line begins with one."""
    stripped = line.lstrip(" \t")
    if not stripped.startswith(fence.run):
        return None
    return len(line) - len(stripped.lstrip(fence.run[0]))


def _documentation(text: TextBuffer, fence: Fence) -> Scanner:
    """Scan a fence that is prose. Nothing begins inside it."""
    begins = True
    while True:
        line = text.line()
        ended = line is not None or text.final
        line = line or text.text[text.at :]
        # As long as the line has only backticks, it may still become the closing fence.
        if ended or not begins or line.lstrip(" \t" + fence.run[0]):
            end = closing_fence(line, fence) if begins else None
            yield Text(text.take(len(line) if end is None else end))
            if end is not None:
                return Position.MID_LINE
            begins = line.endswith("\n") or (begins and not line)
        if text.final and not len(text):
            return Position.LINE_START
        if not ended:
            yield None


def _fenced_code(text: TextBuffer, fence: Fence, names: ToolNames, *, lexed: bool) -> Scanner:
    scan = PythonScan() if lexed else None
    begins = not fence.code
    while True:
        line = yield from text.next_line()
        if line is None:
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START
        in_string = scan is not None and scan.quote
        end = closing_fence(line, fence) if begins and not in_string else None
        if end is None:
            glued = _glued_fence(line, fence, scan)
            code = line if glued is None else line[:glued]
            dedented = _dedent(code, fence.indent) if begins else code
            yield BlockDelta(dedented, text.take(len(code)))
            begins = line.endswith("\n")
            if glued is None:
                continue
            line, end = line[glued:], len(fence.run)
        rest = line[end:].strip()
        if rest and rest.lower() in FENCES and parse_fence(line, names):
            yield BlockEnd("", closed=True)  # the next fence opens although this one was not closed
            return Position.LINE_START
        closing = text.take(end if rest else len(line))
        yield BlockEnd(closing, closed=True)
        return Position.LINE_START if closing.endswith("\n") else Position.MID_LINE


def _glued_fence(line: str, fence: Fence, scan: PythonScan | None) -> int | None:
    """Return the index of a closing fence at the end of a line of code, or None."""
    ticks = len(fence.run) if fence.run[0] == "`" else 0
    if scan is not None:
        return scan.feed(line, fence=ticks)
    code = line.rstrip()
    glued = ticks and code.endswith(fence.run) and not code.startswith(fence.run)
    return len(code) - ticks if glued else None


def _dedent(line: str, indent: str) -> str:
    margin = len(line) - len(line.lstrip(" \t"))
    return line[min(margin, len(indent)) :]
