"""Commands and patches as agents' own prompts teach them, without a call around them.

A ``bash`` fence at the end of a reply counts if exactly one command tool is offered; a patch (raw,
fenced or as a heredoc) counts if ``apply_patch`` is offered. Knows nothing of what a command does.
"""

from __future__ import annotations

import re

from emulator.reading.calls import PATCH, call_statement
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Position, Scanner
from emulator.reading.fences import closing_fence, scan_fence
from emulator.reading.openings import Fence, begins_with_call
from emulator.reading.statements import Statement, unreadable
from emulator.reading.text_buffer import HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames

SHELLS = frozenset({"bash", "sh", "shell", "zsh"})
"""Info strings of fences that contain commands."""
_PATCH_ENDS = re.compile(r"\*\*\* End Patch[ \t\r]*\n?\Z")
_HEREDOC = re.compile(r"<<-?[ \t]*[\"']?(?P<word>\w+)")


def scan_command_fence(text: TextBuffer, fence: Fence, names: ToolNames) -> Scanner:
    """Scan the fence of a shell: a command if it ends the reply, otherwise documentation."""
    tested, closing = len(fence.raw), None
    while closing is None:
        line = yield from text.next_line(tested)
        if line is None or tested > HOLD or (begins_with_call(line, names)):
            return (yield from scan_fence(text, fence, names))
        closing = closing_fence(line, fence)
        tested += len(line) if closing is None else closing
    while not (rest := text.text[text.at + tested :]).strip():
        if text.final:
            return (yield from _command(text, fence, tested, len(rest)))
        yield None
    return (yield from scan_fence(text, fence, names))


def _command(text: TextBuffer, fence: Fence, end: int, rest: int) -> Scanner:
    raw = text.take(end)
    code = raw[len(fence.raw) :]
    inner = code[: code.rfind("\n") + 1]
    yield BlockStart("command", fence.raw)
    yield BlockDelta(inner, inner)
    yield BlockEnd(code[len(inner) :] + text.take(rest), closed=True)
    return Position.LINE_START


def scan_patch(text: TextBuffer) -> Scanner:
    """Scan a patch that begins a line, up to its end and the end of its heredoc."""
    yield BlockStart("patch", "")
    word = ""
    while True:
        line = yield from text.next_line()
        if line is None:
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START
        heredoc = None if word else _HEREDOC.search(line)
        word = heredoc["word"] if heredoc else word
        yield BlockDelta(line, text.take(len(line)))
        if _PATCH_ENDS.match(line):
            break
    line = (yield from text.next_line()) if word else None
    last = text.take(len(line)) if line and line.strip() == word else ""
    yield BlockEnd(last, closed=True)
    return Position.LINE_START


def read_command(text: str, names: ToolNames) -> list[Statement]:
    """Read the content of a shell's fence."""
    if names.patch and (found := PATCH.search(text)):
        return [call_statement(names.patch, [found.group()], names, 1)]
    if not names.command or not text.strip():
        return []
    return [call_statement(names.command, [text.strip("\n")], names, 1)]


def read_patch(text: str, names: ToolNames) -> list[Statement]:
    """Read a patch, with or without a heredoc around it. Raises Unreadable."""
    found = PATCH.search(text)
    if found is None or not names.patch:
        raise unreadable(
            "the patch is cut off", hint="write it from *** Begin Patch to *** End Patch"
        )
    return [call_statement(names.patch, [found.group()], names, 1)]
