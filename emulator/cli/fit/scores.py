"""Count the outcomes of each way, with 95 % intervals, and recommend a way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from emulator.cli.fit.outcomes import TaskOutcome
from emulator.core.tasks import Task


@dataclass(frozen=True)
class Share:
    count: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval (1927) at 95 %, which holds for small numbers and near 0 and 1."""
        if not self.of:
            return 0.0, 1.0
        z, n = 1.96, self.of
        share = self.count / n
        middle = share + z * z / (2 * n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else 0.0

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.count}/{self.of} ({low:.0%} to {high:.0%})".replace("%", " %")


@dataclass(frozen=True)
class Score:
    """One way. Tokens and seconds are means of a task."""

    way: str
    solved: Share
    """Tasks with all calls right and none needless; a task without calls must be answered in words."""
    function: Share
    arguments: Share
    words: Share
    """Of the tasks without calls: those that were answered in words."""
    needless: Share
    """Answers with more calls than the task needs."""
    harmful: Share
    """Of the tasks that say show, or ask first."""
    labelled: Share
    """Of the answers with calls: those whose block had the label tool_code. Programs only."""
    prompt_tokens: float
    completion_tokens: float
    seconds: float

    def json(self) -> dict[str, Any]:
        return {
            name: {**asdict(value), "interval": [round(end, 3) for end in value.interval]}
            if isinstance(value, Share)
            else value
            for name, value in vars(self).items()
        }


def score(way: str, outcomes: Sequence[TaskOutcome], tasks: Mapping[str, Task]) -> Score:
    """Count ``outcomes``, those of one way."""
    calling = [outcome for outcome in outcomes if tasks[outcome.task].calls]
    talking = [outcome for outcome in outcomes if not tasks[outcome.task].calls]
    cautious = [outcome for outcome in outcomes if tasks[outcome.task].kind in ("show", "ask")]
    programs = [outcome for outcome in outcomes if outcome.calls and way == "python"]
    number = max(1, len(outcomes))
    return Score(
        way,
        solved=Share(sum(outcome.arguments for outcome in outcomes), len(outcomes)),
        function=Share(sum(outcome.function for outcome in calling), len(calling)),
        arguments=Share(sum(outcome.arguments for outcome in calling), len(calling)),
        words=Share(sum(outcome.arguments for outcome in talking), len(talking)),
        needless=Share(sum(outcome.needless > 0 for outcome in outcomes), len(outcomes)),
        harmful=Share(sum(outcome.harmful for outcome in cautious), len(cautious)),
        labelled=Share(sum(outcome.labelled for outcome in programs), len(programs)),
        prompt_tokens=round(sum(outcome.prompt_tokens for outcome in outcomes) / number, 1),
        completion_tokens=round(sum(outcome.completion_tokens for outcome in outcomes) / number, 1),
        seconds=round(sum(outcome.seconds for outcome in outcomes) / number, 2),
    )


def recommended(scores: Sequence[Score]) -> Score:
    """The way with the highest product of right arguments and of tasks answered in words; then fewest tokens.

    A sum would recommend a way in which a model never calls, or always does.
    """

    def merit(score: Score) -> tuple[float, int, float]:
        tokens = score.prompt_tokens + score.completion_tokens
        return score.arguments.value * score.words.value, score.solved.count, -tokens

    return max(scores, key=merit)
