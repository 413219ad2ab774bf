"""The outcomes of a run, in a file: a line of JSON for each, appended as soon as it is known.

The first line of each run names what is measured. Lines after another name are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from emulator.tasks import Call


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """What became of one task in one way. ``function`` and ``arguments`` are those of `tasks.TaskVerdict`,
    and False without an answer."""

    way: str
    task: str
    function: bool
    arguments: bool
    needless: int
    harmful: bool
    prompt_tokens: int
    """Of all turns, repairs included."""
    completion_tokens: int
    seconds: float
    calls: tuple[Call, ...] = ()
    problem: str = ""
    """Why there is no usable answer."""
    is_upstreams_fault: bool = False
    """The next run asks again."""


@dataclass
class Outcomes:
    """The outcomes so far, by way and task."""

    path: Path
    identity: Mapping[str, str]
    """What is measured: server, model, tasks."""
    known: dict[tuple[str, str], TaskOutcome] = field(default_factory=dict)

    def read(self) -> None:
        """Read the lines of earlier runs; a line that was cut off is ignored. Raises ``OSError``."""
        ours = False
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                if "identity" in row:
                    ours = row["identity"] == self.identity
                elif ours and row.keys() == {each.name for each in fields(TaskOutcome)}:
                    self.known[row["way"], row["task"]] = TaskOutcome(**row)

    def start(self, *, again: bool = False) -> None:
        """Begin to append; ``again`` forgets the earlier lines. Raises ``OSError``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if again:
            self.path.unlink(missing_ok=True)
        self._append({"identity": self.identity})

    def add(self, outcome: TaskOutcome) -> None:
        self.known[outcome.way, outcome.task] = outcome
        if not outcome.is_upstreams_fault:
            self._append(asdict(outcome))

    def of(self, way: str) -> list[TaskOutcome]:
        return [outcome for (name, _), outcome in self.known.items() if name == way]

    def _append(self, row: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
