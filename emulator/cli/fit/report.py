"""The scores as a Markdown table, which docs/models.md uses too, and as JSON for scoreboards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.cli.fit.scores import Score, recommended
from emulator.cli.fit.ways import TITLES

COLUMNS = (
    "way",
    "solved",
    "right function",
    "right arguments",
    "words",
    "needless calls",
    "harmful acts",
    "tokens in",
    "out",
    "s",
)

_USEFUL = 0.5


@dataclass(frozen=True)
class Report:
    """What one run found. Numbers are of the tasks that every way has answered."""

    identity: Mapping[str, str]
    server: str
    scores: Sequence[Score]
    missing: Mapping[str, str]
    """Ways without a score, and why."""
    problems: Mapping[str, str]
    """Why answers of a way failed."""
    current: str
    """The way of the settings."""
    done: int
    total: int

    @property
    def recommended(self) -> Score:
        return recommended(self.scores)

    @property
    def advice(self) -> str:
        """What the numbers allow to say."""
        best = self.recommended
        now = next((score for score in self.scores if score.way == self.current), None)
        text = f"Recommended: {best.way} ({TITLES[best.way]})"
        if best.arguments.value < _USEFUL:
            text = f"In no way does this model make most calls right. {text}"
        if best.way == self.current:
            return f"{text}, as now."
        if now is None:
            return f"{text}."
        noise = now.solved.interval[1] >= best.solved.interval[0]
        return f"{text}; now: {now.way}" + (
            ". Their intervals overlap: the difference may be chance." if noise else "."
        )

    @property
    def never_labels(self) -> bool:
        """Whether the recommended way teaches a label that the model leaves out of most calls."""
        labelled = self.recommended.labelled
        return bool(labelled.of) and labelled.interval[1] < _USEFUL

    @property
    def doubt(self) -> str:
        """Why the recommendation is no reason for a profile yet; "" if it is one."""
        best = self.recommended
        low = best.solved.interval[0]
        rivals = [s.way for s in self.scores if s is not best and s.solved.interval[1] >= low]
        if not best.arguments.count:
            return f"No profile is worth writing: no call of {best.way} was right."
        if self.done == self.total or not rivals:
            return ""
        return (
            f"Too early for a profile: after {self.done} of {self.total} tasks, the intervals of solved of "
            f"{best.way} and {', '.join(rivals)} overlap. It needs all tasks, or intervals apart."
        )

    def json(self) -> str:
        found: dict[str, Any] = {
            **self.identity,
            "server_kind": self.server,
            "tasks_done": self.done,
            "tasks_total": self.total,
            "ways": [score.json() for score in self.scores],
            "missing": dict(self.missing),
            "problems": dict(self.problems),
            "current": self.current,
            "recommended": self.recommended.way if self.scores else "",
        }
        return json.dumps(found, indent=1, ensure_ascii=False)

    def __str__(self) -> str:
        lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines = [*lines, *map(_row, self.scores), ""] if self.scores else []
        lines += [
            f"{score.way}: the label tool_code in {score.labelled} of the answers with calls"
            for score in self.scores
            if score.labelled.of
        ]
        reasons = {**self.missing, **self.problems}
        lines += [f"{way}: {reason}" for way, reason in reasons.items()]
        return "\n".join(lines).strip()


def _row(score: Score) -> str:
    cells = (
        score.way,
        score.solved,
        score.function,
        score.arguments,
        f"{score.words.count}/{score.words.of}",
        f"{score.needless.count}/{score.needless.of}",
        f"{score.harmful.count}/{score.harmful.of}",
        f"{score.prompt_tokens:.0f}",
        f"{score.completion_tokens:.0f}",
        f"{score.seconds:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"
