"""The tasks by which `tool-emulator fit` measures a model, read from tasks.toml, and the judge of an answer.

Below the rooms that answer requests, because the probe of ``tools = auto`` asks the first task. Knows nothing
of models, prompts or HTTP.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

Call = tuple[str, Mapping[str, Any]]
"""A tool's name and the arguments of one call."""


@dataclass(frozen=True)
class TaskVerdict:
    """What an answer did. If no call is expected, ``function`` and ``arguments`` mean that none was made."""

    function: bool
    """Exactly the expected tools were called."""
    arguments: bool
    """And with the right arguments."""
    needless: int
    """Calls beyond the expected ones."""
    harmful: bool
    """An acting tool was called although the user wants to see, or to be asked, first."""


@dataclass(frozen=True)
class Task:
    id: str
    kind: str
    language: str
    ask: str
    """The user's message."""
    tools: tuple[Mapping[str, Any], ...]
    """The ``tools`` of a chat completion request."""
    acting: frozenset[str]
    """The names of the tools that change something."""
    calls: tuple[Call, ...]
    """The expected calls; empty if the right answer is text."""
    results: Mapping[str, Any]
    """Tool -> what each of its calls returns."""
    exact: bool
    """Texts are compared character by character."""

    def judge(self, calls: Sequence[Call]) -> TaskVerdict:
        """Compare the calls of an answer, in any order, with the expected ones."""
        found, wanted = sorted(n for n, _ in calls), sorted(n for n, _ in self.calls)
        unmatched = list(calls)
        for name, arguments in self.calls:
            right = (c for c in unmatched if c[0] == name and self._same(c[1], arguments))
            if (match := next(right, None)) is not None:
                unmatched.remove(match)
        return TaskVerdict(
            function=found == wanted,
            arguments=found == wanted and not unmatched,
            needless=max(0, len(calls) - len(self.calls)),
            harmful=self.kind in ("show", "ask") and not self.acting.isdisjoint(found),
        )

    def _same(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, Mapping):
            if wanted.keys() == {"any"}:
                return any(self._same(found, value) for value in wanted["any"])
            if not isinstance(found, Mapping):
                return False
            names = wanted.keys() | {name for name in found if found[name] not in _UNSAID}
            return names == wanted.keys() <= found.keys() and all(
                self._same(found[name], value) for name, value in wanted.items()
            )
        if isinstance(wanted, list):
            same_length = isinstance(found, list) and len(found) == len(wanted)
            return same_length and all(map(self._same, found, wanted))
        if isinstance(wanted, str) and isinstance(found, str) and not self.exact:
            return _plain(found) == _plain(wanted)
        return bool(found == wanted)


_UNSAID = (None, False)
"""What an argument may be that the request does not mention."""


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.casefold()).strip().rstrip(".!?。")


@lru_cache(maxsize=1)
def tasks() -> tuple[Task, ...]:
    """All tasks. Those of one kind are apart, so that a run that ends early has measured each kind."""
    source = tomllib.loads(_text())
    tools = {name: _tool(name, table) for name, table in source["tools"].items()}
    acting = frozenset(name for name, table in source["tools"].items() if table.get("acts"))
    read = [
        Task(
            row["id"],
            row["kind"],
            row.get("language", "en"),
            row["ask"],
            tuple(tools[name] for name in row["tools"]),
            acting,
            tuple(call for table in row.get("calls", ()) for call in table.items()),
            row.get("results", {}),
            row.get("exact", False),
        )
        for row in source["tasks"]
    ]
    places: dict[str, int] = {}
    order = {}
    for task in read:
        order[task.id] = places[task.kind] = places.get(task.kind, -1) + 1
    return tuple(sorted(read, key=lambda task: order[task.id]))


def version() -> str:
    """Changes with the tasks: results of different versions cannot be compared."""
    return hashlib.sha256(_text().encode()).hexdigest()[:8]


def _text() -> str:
    return files("emulator.core").joinpath("tasks.toml").read_text("utf-8")


def _tool(name: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    properties, optional = table["properties"], table.get("optional", ())
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [each for each in properties if each not in optional],
        "additionalProperties": False,
    }
    function = {"name": name, "description": table["description"], "parameters": parameters}
    return {"type": "function", "function": function}
