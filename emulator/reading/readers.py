"""The table of readers: one for each way in which models write calls.

Every reader turns its calls into Python statements. This module knows the dialects by name only;
each reader is in its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from emulator.reading.commands import read_command, read_patch
from emulator.reading.data_readers import (
    BlockReader,
    read_json,
    read_leftover,
    read_nothing,
    read_react,
    read_yaml,
)
from emulator.reading.markup_reader import read_markup
from emulator.reading.openings import EXAMPLE
from emulator.reading.python_reader import PythonReader
from emulator.reading.python_syntax import calls_tool, used_tools, uses_tool
from emulator.reading.statements import LiteralCall, Statement, Unreadable
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames

__all__ = [
    "READERS",
    "LiteralCall",
    "Reader",
    "Statement",
    "Unreadable",
    "calls_tool",
    "mentions_tool",
    "read",
    "used_tools",
    "uses_tool",
]

Reader = PythonReader | BlockReader
"""Reads one block incrementally; the result does not depend on where the text is cut. ``feed`` returns the
statements that are certainly complete, ``close`` the remaining ones. Raises Unreadable; statements already
returned stay valid."""

#: Dialect of a block (`events.BlockStart.dialect`) -> factory of its reader. The factory takes the
#: offered names: Python names, or a mapping of written to Python name.
READERS: dict[str, Callable[[Collection[str]], Reader]] = {
    "python": PythonReader,
    "json": partial(BlockReader, read_json),
    "markup": partial(BlockReader, read_markup),
    "react": partial(BlockReader, read_react),
    "yaml": partial(BlockReader, read_yaml),
    "command": partial(BlockReader, read_command),
    "patch": partial(BlockReader, read_patch),
    "leftover": partial(BlockReader, read_leftover),
    EXAMPLE: partial(BlockReader, read_nothing),
}


def read(dialect: str, text: str, names: Collection[str] = ()) -> list[Statement]:
    """Return all statements of a whole block. Raises Unreadable."""
    reader = READERS[dialect](names)
    return [*reader.feed(text), *reader.close()]


def mentions_tool(text: str, names: Collection[str]) -> bool:
    """Return True if an offered name occurs in the text. A broken block without one is
    documentation.
    """
    offered = ToolNames.of(names)
    return any(offered.find(match.group()) for match in WRITTEN_NAME.finditer(text))
