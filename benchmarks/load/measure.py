"""Rounds over all servers in turn, so that what else the machine does falls on each alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.load.cases import Case, Growth
from benchmarks.load.client import Load, Told
from benchmarks.load.servers import Server

_GROWTH = 1.2
"""What costs less than that many times more at its largest does not grow to speak of."""


@dataclass
class Target:
    """A server as one path of it is asked."""

    server: Server
    load: Load


@dataclass
class Figures:
    """One case on one server, a value a round."""

    cpu: list[float] = field(default_factory=list)
    """Milliseconds of CPU a request."""
    rate: list[float] = field(default_factory=list)
    """Requests a second."""
    first: list[float] = field(default_factory=list)
    """Seconds to the first content, of each request."""

    @property
    def ms(self) -> float:
        return statistics.median(self.cpu)

    @property
    def least(self) -> float:
        """What a request costs where little else disturbs it."""
        return min(self.cpu)

    @property
    def spread(self) -> float:
        return max(self.cpu) / min(self.cpu) if min(self.cpu) else math.inf


def compare(case: Case, targets: Mapping[str, Target], rounds: int) -> dict[str, Figures]:
    """``case`` on each of its servers that is there, round by round."""
    asked = {name: targets[name] for name in case.servers if name in targets}
    found = {name: Figures() for name in asked}
    for n in range(rounds):
        for name, target in asked.items():
            if n == 0 and case.warm:
                target.load.run(case.bodies(2 * case.at_once), case.at_once)
            one_round(case, target, found[name])
    return found


def one_round(case: Case, target: Target, figures: Figures) -> None:
    bodies = case.bodies(case.count)
    before = target.server.cpu()
    told, seconds = target.load.timed(bodies, case.at_once)
    figures.cpu.append(1000 * (target.server.cpu() - before) / len(bodies))
    figures.rate.append(len(bodies) / seconds)
    figures.first += [one.first for one in told]


def grows(growth: Growth, target: Target, rounds: int) -> list[Figures]:
    """A `Figures` for each size."""
    cases = [growth.case(size) for size in growth.sizes]
    found = [Figures() for _ in cases]
    for n in range(rounds):
        for case, figures in zip(cases, found, strict=True):
            if n == 0 and case.warm:
                target.load.run(case.bodies(1), 1)
            one_round(case, target, figures)
    return found


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float | None:
    """The k of the a + b * size ** k, neither below 0, that is nearest to all costs.

    None if they hardly grow. Errors are relative, as those of what is measured are: small sizes count as much
    as large ones.
    """
    if max(costs) < _GROWTH * min(costs):
        return None
    return min((n / 20 for n in range(1, 61)), key=lambda k: _misfit(k, sizes, costs))


def _misfit(power: float, sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Of the best a and b: the sum of the squares of relative errors."""
    # cost = a + b * x, divided by the cost: 1 = a * u + b * v.
    pairs = [(1 / cost, size**power / cost) for size, cost in zip(sizes, costs, strict=True)]
    uu, uv, vv = (sum(p[i] * p[j] for p in pairs) for i, j in ((0, 0), (0, 1), (1, 1)))
    u, v = (sum(p[i] for p in pairs) for i in (0, 1))
    determinant = uu * vv - uv * uv
    a = max(0.0, (u * vv - v * uv) / determinant) if determinant else 0.0
    b = max(0.0, (v - a * uv) / vv)
    return sum((1 - a * p - b * q) ** 2 for p, q in pairs)


def first_chunk_added(
    body: bytes, direct: Load, targets: Mapping[str, Target], rounds: int
) -> dict[str, float]:
    """Median milliseconds that each server adds to the first content, one request at a time."""
    found: dict[str, list[float]] = {name: [] for name in targets}
    for load in (direct, *(target.load for target in targets.values())):
        load.run([body] * 3, 1)
    for _ in range(rounds):
        straight = _first(direct.run([body], 1))
        for name, target in targets.items():
            found[name].append(1000 * (_first(target.load.run([body], 1)) - straight))
    return {name: statistics.median(values) for name, values in found.items()}


def _first(told: Sequence[Told]) -> float:
    return told[0].first
