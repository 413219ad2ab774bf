"""Find tools by words: BM25 over names, descriptions and arguments, in an FTS5 table of SQLite's in memory.

Words of scripts without spaces are pairs of characters. Knows nothing of prompts, nor of which tools a model
has seen.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from emulator.tools.tool import Tool

_WORD = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""Thai, Lao, Japanese, Chinese; Korean, whose words have endings."""
_SCRIPTS = re.compile(rf"{_UNSPACED.pattern}|{_UNSPACED.pattern.replace('[', '[^')}")
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
    " which who will with would you your"
    " s t d m ll re ve".split()  # what is after the apostrophe of a contraction
)


class ToolIndex:
    """Ranks the tools of one toolset. Safe to share between threads."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._lock = threading.Lock()
        self._table = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._table.close)
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
        return [tool for tool, _ in self.scores(query)]

    def scores(self, query: str) -> list[tuple[Tool, float]]:
        """The tools as for `rank`, each with its positive score."""
        words = dict.fromkeys(word.lower() for word in _words(query[:_MAX_QUERY]))
        chosen = ([word for word in words if word not in _COMMON] or list(words))[:_MAX_WORDS]
        if not chosen:
            return []
        # Words consist of letters and digits: in quotes they cannot be operators.
        match = " OR ".join(f'"{word}"' for word in chosen)
        with self._lock:
            rows = self._table.execute(
                f"SELECT rowid, -bm25(tool, {_WEIGHTS}) AS score FROM tool WHERE tool MATCH ?"
                " ORDER BY score DESC, rowid",
                (match,),
            ).fetchall()
        return [(self._tools[n], score) for n, score in rows]


def _columns(tool: Tool) -> tuple[str, str, str]:
    texts = (tool.name, tool.description, " ".join(_schema_texts(tool.parameters)))
    name, description, arguments = (" ".join(_words(text[:_MAX_TEXT])) for text in texts)
    return name, description, arguments


def _schema_texts(schema: Any) -> Iterator[str]:
    """The names, descriptions and listed values in a schema, at any depth."""
    if isinstance(schema, list):
        for one in schema:
            yield from _schema_texts(one)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("description", "const") and isinstance(value, str):
                yield value
            elif key == "enum" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, str))
            elif key in ("properties", "$defs") and isinstance(value, dict):
                for name, one in value.items():
                    yield name
                    yield from _schema_texts(one)
            else:
                yield from _schema_texts(value)


def _words(text: str) -> Iterator[str]:
    """The words of a text; a name in camel case or with underscores has several."""
    for word in _WORD.findall(text):
        for run in _SCRIPTS.findall(word):
            if _UNSPACED.match(run):
                yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
            else:
                yield from _PARTS.split(run)
