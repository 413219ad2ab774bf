"""Commands and patches as agents' own prompts teach them: text without a call around it.

A ``bash`` fence at the end of a reply, where one tool that runs commands is offered; a patch, raw, fenced or
as a heredoc, where ``apply_patch`` is. Knows nothing of what a command does.
"""

from __future__ import annotations

import re

from emulator.reading.calls import PATCH, statement
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart
from emulator.reading.fences import closing_fence, fenced
from emulator.reading.openings import Fence, begins_with_call
from emulator.reading.scanner import Position, Scanner
from emulator.reading.statements import Statement, unreadable
from emulator.reading.text_buffer import HOLD, TextBuffer
from emulator.reading.tool_names import ToolNames

SHELLS = frozenset({"bash", "sh", "shell", "zsh"})
"""Labels of fences that hold commands."""
_PATCH_ENDS = re.compile(r"\*\*\* End Patch[ \t\r]*\n?\Z")
_HEREDOC = re.compile(r"<<-?[ \t]*[\"']?(?P<word>\w+)")


def command_fence(text: TextBuffer, fence: Fence, names: ToolNames) -> Scanner:
    """A fence of a shell: a command if it ends the reply, else documentation."""
    looked, closing = len(fence.raw), None
    while closing is None:
        line = text.line(looked)
        if line is None and not text.final:
            yield None
            continue
        if line is None or looked > HOLD or (begins_with_call(line, names)):
            return (yield from fenced(text, fence, names))
        closing = closing_fence(line, fence)
        looked += len(line) if closing is None else closing
    while not (rest := text.text[text.at + looked :]).strip():
        if text.final:
            return (yield from _command(text, fence, looked, len(rest)))
        yield None
    return (yield from fenced(text, fence, names))


def _command(text: TextBuffer, fence: Fence, end: int, rest: int) -> Scanner:
    raw = text.take(end)
    code = raw[len(fence.raw) :]
    inner = code[: code.rfind("\n") + 1]
    yield BlockStart("command", fence.raw)
    yield BlockDelta(inner, inner)
    yield BlockEnd(code[len(inner) :] + text.take(rest), closed=True)
    return Position.LINE_START


def patch(text: TextBuffer) -> Scanner:
    """A patch that begins a line, up to its end, and that of the heredoc around it."""
    yield BlockStart("patch", "")
    word = ""
    while True:
        line = text.line()
        if line is None and not text.final:
            yield None
            continue
        if line is None:
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START
        heredoc = None if word else _HEREDOC.search(line)
        word = heredoc["word"] if heredoc else word
        yield BlockDelta(line, text.take(len(line)))
        if _PATCH_ENDS.match(line):
            break
    while word and (line := text.line()) is None and not text.final:
        yield None
    last = text.take(len(line)) if word and line and line.strip() == word else ""
    yield BlockEnd(last, closed=True)
    return Position.LINE_START


def read_command(text: str, names: ToolNames) -> list[Statement]:
    """The text of a shell's fence."""
    if names.patch and (found := PATCH.search(text)):
        return [statement(names.patch, [found.group()], names, 1)]
    if not names.command or not text.strip():
        return []
    return [statement(names.command, [text.strip("\n")], names, 1)]


def read_patch(text: str, names: ToolNames) -> list[Statement]:
    """A patch, with or without a heredoc around it. Raises Unreadable."""
    found = PATCH.search(text)
    if found is None or not names.patch:
        raise unreadable(
            "the patch is cut off", hint="write it from *** Begin Patch to *** End Patch"
        )
    return [statement(names.patch, [found.group()], names, 1)]
