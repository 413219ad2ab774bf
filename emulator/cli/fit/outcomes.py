"""The outcomes of a run, in a file: a line of JSON for each, appended as soon as it is known.

Each line names what is measured, so that runs at the same time, or one that was cut off, mix nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emulator.core.tasks import Call


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
    labelled: bool = False
    """A reply labelled its block as the prompt says."""
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
        if self.path.exists() and not self.path.is_file():  # /dev/zero never ends, and a pipe waits
            raise OSError(f"{self.path}: not a regular file")
        text = self.path.read_text("utf-8", "replace") if self.path.exists() else ""
        for line in text.splitlines():
            with suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                if row["identity"] == self.identity:
                    outcome = TaskOutcome(**row["outcome"])
                    self.known[outcome.way, outcome.task] = outcome

    def start(self, *, again: bool = False) -> None:
        """Prepare the file; ``again`` forgets the earlier lines. Raises ``OSError``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if again:
            self.path.unlink(missing_ok=True)
        self.path.touch()

    def add(self, outcome: TaskOutcome) -> None:
        """Raises ``OSError`` if it cannot be stored."""
        self.known[outcome.way, outcome.task] = outcome
        if not outcome.is_upstreams_fault:
            row = {"identity": self.identity, "outcome": asdict(outcome)}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(row)}")  # the last line may be cut off

    def of(self, way: str) -> list[TaskOutcome]:
        return [outcome for (name, _), outcome in self.known.items() if name == way]
