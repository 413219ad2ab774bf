"""Rounds over all servers in turn, so that what else the machine does falls on each alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.load.cases import Case, Growth
from benchmarks.load.client import Load, Told
from benchmarks.load.servers import Server


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
    """Of the growth between the largest two sizes, of what is added over the smallest one."""
    added = [cost - costs[0] for cost in costs[1:]]
    grown = [size - sizes[0] for size in sizes[1:]]
    points = [
        (math.log(size), math.log(cost))
        for size, cost in zip(grown, added, strict=True)
        if cost > 0.2
    ]
    if len(points) < 2:
        return None
    (x, y), (x2, y2) = points[-2:]
    return (y2 - y) / (x2 - x)


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
