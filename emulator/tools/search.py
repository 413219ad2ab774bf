"""Find tools by words: BM25 over names, descriptions and arguments, in an FTS5 table of SQLite's in memory.

Knows nothing of prompts, nor of which tools a model has seen.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence

from emulator.tools.schema import Schema
from emulator.tools.tool import Tool

_WORD = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MAX_QUERY = 4_000
"""Characters of a query that are read."""
_MAX_WORDS = 200
"""Different words of a query that count: SQLite limits expressions."""
_MAX_TEXT = 8_000
"""Characters of one column of one tool."""
_WEIGHTS = "3.0, 1.0, 1.0"
"""Of the columns ``name``, ``description`` and ``arguments``."""
# Words of requests that say nothing about a tool: they would favour long descriptions.
_COMMON = frozenset(
    "a an and are as at be by can could do does for from get give have how i if in into is it its me my need"
    " of on or our please so tell that the their them then there these this to us want was we what when where"
    " which who will with would you your".split()
)


class ToolIndex:
    """Ranks the tools of one toolset. Safe to share between threads."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._lock = threading.Lock()
        self._table = sqlite3.connect(":memory:", check_same_thread=False)
        self._table.execute(
            "CREATE VIRTUAL TABLE tool USING"
            " fts5(name, description, arguments, tokenize = 'porter unicode61')"
        )
        rows = ((n, *_columns(tool)) for n, tool in enumerate(self._tools))
        self._table.executemany(
            "INSERT INTO tool(rowid, name, description, arguments) VALUES (?, ?, ?, ?)", rows
        )

    def rank(self, query: str) -> list[Tool]:
        """The tools that share words with ``query``, best first; equal ones in the toolset's order."""
        words = dict.fromkeys(word.lower() for word in _words(query[:_MAX_QUERY]))
        chosen = ([word for word in words if word not in _COMMON] or list(words))[:_MAX_WORDS]
        if not chosen:
            return []
        # Words consist of letters and digits: in quotes they cannot be operators.
        match = " OR ".join(f'"{word}"' for word in chosen)
        with self._lock:
            rows = self._table.execute(
                f"SELECT rowid FROM tool WHERE tool MATCH ? ORDER BY bm25(tool, {_WEIGHTS}), rowid",
                (match,),
            ).fetchall()
        return [self._tools[n] for (n,) in rows]


def _columns(tool: Tool) -> tuple[str, str, str]:
    arguments = (
        f"{p.name} {p.remark('description') or ''} {_choices(p.schema)}" for p in tool.arguments
    )
    texts: Sequence[str] = (tool.name, tool.description, " ".join(arguments))
    name, description, listed = (" ".join(_words(text[:_MAX_TEXT])) for text in texts)
    return name, description, listed


def _choices(schema: Schema) -> str:
    """The values of an argument, or of its items, if they are listed."""
    view = schema if isinstance(schema, dict) else {}
    items = view.get("items")
    listed = view.get("enum") or (items.get("enum") if isinstance(items, dict) else None)
    return " ".join(value for value in listed or () if isinstance(value, str))


def _words(text: str) -> Iterator[str]:
    """The words of a text; a name in camel case or with underscores has several."""
    for word in _WORD.findall(text):
        yield from _PARTS.split(word)
