"""Read calls in the tags and tokens that models were trained on for tool use.

A block is read from left to right. The first match of the table in `markup_forms` determines how
the call continues; the search for the next call starts after its end, so nothing inside a value is
taken for a tag.
"""

from __future__ import annotations

import ast
import re

from emulator.reading.calls import call_statement, unfold
from emulator.reading.data_readers import read_python
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.markup_block import MarkupBlock
from emulator.reading.markup_forms import FORMS, Header, MarkupForm
from emulator.reading.python_syntax import BUILTINS, calls_tool, dotted_name, parse
from emulator.reading.statements import NoCall, Statement, Unreadable
from emulator.reading.tool_names import ToolNames

_BEGINS = re.compile("|".join(form.opening for form in FORMS), re.MULTILINE)
_BY_KEY = {form.key: form for form in FORMS}
#: The name in these rows may be any word: only an offered one counts.
_OFFERED_ONLY = ("element", "bare")

#: A tag around calls, or a token that ends the turn.
_FRAME = (
    r"</?[\w:|.\-]{1,60}>|<\|?[\w/:| ]{1,60}\|?>|\[/?[A-Z_]{1,30}\]|\bfunctools(?=\[)"
    r"|```(?:\w+(?=\n))?"
)
_LEADING = re.compile(rf"(?:\s|{_FRAME})*")
_MAY_BE_PYTHON = re.compile(r"[^\W\d]|\[\s*[^\W\d]|\[\s*[\"']\w+\(|[\"'#@(]")


def read_markup(text: str, names: ToolNames) -> list[Statement]:
    """Return the calls in ``text``. Raises Unreadable if there is none."""
    block = MarkupBlock(text, names)
    found = _as_python(block)
    at = 0
    while at or not found:
        match = _BEGINS.search(block.plain, at)
        if match is None:
            break
        form = _BY_KEY[str(match.lastgroup)]
        if form.key == "python":
            python = _python(block, match.start())
            found += python if any(_is_call(one, names) for one in python) else []
            break
        name = re.sub(r":\d{1,6}\Z", "", _name_of(block, match, form))
        is_command = form.key == "element" and names.runs_commands(name)
        if form.key in _OFFERED_ONLY and not (names.find(name) or is_command):
            at = match.end()
            continue
        line = block.line(match.start())
        header = Header(match.start(), match.end(), match.group())
        calls, at = form.read(block, header, name)
        found += [
            call_statement(written, arguments, names, line)
            for call in calls
            for written, arguments in unfold(*call, names)
        ]
        at = max(at, match.start() + 1)
    if not found:
        hint = 'write {"name": "function", "arguments": {"argument": value}} between the tags'
        first = text.strip().split("\n")[0][:200]
        raise NoCall([Diagnostic("there is no call in this block", 1, 0, first, hint)])
    return found


_REST_OF_NAME = re.compile(r"commentary|analysis")


def _name_of(block: MarkupBlock, match: re.Match[str], form: MarkupForm) -> str:
    """Return the function's name. It may end like the channel that can follow it."""
    start, end = match.span(form.key)
    rest = _REST_OF_NAME.match(block.plain, end)
    if form.key == "harmony" and rest and block.names.find(block.text[start : rest.end()]):
        end = rest.end()
    return block.text[start:end].strip()


def _as_python(block: MarkupBlock) -> list[Statement]:
    """Return the statements of a block that consists entirely of Python."""
    leading = _LEADING.match(block.plain)
    start = leading.end() if leading else 0
    if not _MAY_BE_PYTHON.match(block.plain, start):
        return []
    try:
        found = _python(block, start)
    except Unreadable:
        return []
    return found if any(calls_tool(one.source, block.names) for one in found) else []


def _is_call(statement: Statement, names: ToolNames) -> bool:
    """Return True if Python calls a tool, or is nothing but a name and its arguments."""
    match parse(statement.source).body:
        case [ast.Expr(value=ast.List(elts=[ast.Call() as call, *_]) | (ast.Call() as call))]:
            name = dotted_name(call.func)
            if name and name not in BUILTINS:
                return True
    return calls_tool(statement.source, names)


def _python(block: MarkupBlock, start: int) -> list[Statement]:
    line = 1 + block.text.count("\n", 0, start)
    found = read_python(block.text[start : max(start, block.end)], block.names)
    return [Statement(one.source, one.line + line - 1) for one in found]
