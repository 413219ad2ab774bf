"""The ladder: one reader per way in which models write calls. Python first, and Python is what
every other reader turns its calls into.

Knows the dialects by name only; each reader stands in its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from emulator.reading.commands import read_command, read_patch
from emulator.reading.data_readers import read_json, read_leftover, read_react, read_yaml, reader_of
from emulator.reading.markup_reader import read_markup
from emulator.reading.python_reader import PythonReader
from emulator.reading.python_syntax import calls_tool, passes_tool
from emulator.reading.statements import Reader, Statement, Unreadable
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames

__all__ = [
    "READERS",
    "Reader",
    "Statement",
    "Unreadable",
    "calls_tool",
    "mentions_tool",
    "read",
    "uses_tool",
]

#: Dialect of a block (`events.BlockStart.dialect`) -> reader of it, given the offered names:
#: Python names, or a mapping of written name -> Python name.
READERS: dict[str, Callable[[Collection[str]], Reader]] = {
    "python": PythonReader,
    "json": reader_of(read_json),
    "markup": reader_of(read_markup),
    "react": reader_of(read_react),
    "yaml": reader_of(read_yaml),
    "command": reader_of(read_command),
    "patch": reader_of(read_patch),
    "leftover": reader_of(read_leftover),
}


def read(dialect: str, text: str, names: Collection[str] = ()) -> list[Statement]:
    """All statements of a whole block. Raises Unreadable."""
    reader = READERS[dialect](names)
    return [*reader.feed(text), *reader.close()]


def uses_tool(statement: Statement, names: ToolNames) -> bool:
    """Whether it calls one, or gives one to what may call it."""
    code = statement.tree or statement.source
    return calls_tool(code, names) or passes_tool(code, names)


def mentions_tool(text: str, names: Collection[str]) -> bool:
    """Whether an offered name occurs in the text; a broken block without one is documentation."""
    offered = ToolNames.of(names)
    return any(offered.find(match.group()) for match in WRITTEN_NAME.finditer(text))
