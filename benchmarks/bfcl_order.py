"""How many of BFCL's parallel calls are sent in one message, by ``--order`` -> docs/programs.md.

    python -m benchmarks.bfcl_order [--every 20]

The upstream is that of `benchmarks.bfcl`: it writes the calls of the ground truth as statements, as a loop
or as a list. The table counts the cases whose first message has all calls; in the others the remaining
calls follow in later messages, without a model turn.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

from benchmarks import bfcl_truth
from benchmarks.bfcl import Trial, bench, trials
from benchmarks.bfcl_truth import Case
from benchmarks.report import write_section
from emulator import logs
from emulator.settings import Order

DOCS = Path(__file__).parent.parent / "docs"
CATEGORIES = ("parallel", "parallel_multiple", "live_parallel", "live_parallel_multiple")
STYLES = {"keywords": "statements", "variables + loop": "loop", "list": "list"}

PAGE = """\
BFCL's cases with parallel calls: how many send all calls in the first message, written as statements / as a
loop / as a list (`make bench-bfcl-multi-turn`):

{table}

In the other cases the remaining calls follow in later messages, without a model turn.
"""


def measure(cases: Sequence[Case], jobs: int) -> tuple[Counter[Any], Counter[Any]]:
    """Count the cases whose first message has all calls, and all cases, by (category, style, order)."""
    whole: Counter[Any] = Counter()
    total: Counter[Any] = Counter()

    def run(job: tuple[Trial, Order]) -> tuple[tuple[str, str, Order], bool]:
        trial, order = job
        calls = running.first_calls(trial, order)
        return (trial.case.category, trial.style, order), len(calls) == len(trial.case.ideal)

    jobs_to_run = [
        (trial, order)
        for case in cases
        for trial in trials(case)
        if trial.mode == "plain" and trial.style in STYLES
        for order in get_args(Order)
    ]
    with bench() as running, ThreadPoolExecutor(jobs) as pool:
        for key, at_once in pool.map(run, jobs_to_run):
            total[key] += 1
            whole[key] += at_once
    return whole, total


def report(whole: Counter[Any], total: Counter[Any]) -> str:
    orders = get_args(Order)
    lines = [f"| category | cases | {' | '.join(f'`{o}`' for o in orders)} |"]
    lines.append(f"|---|--:|{'--:|' * len(orders)}")
    for category in CATEGORIES:
        cells = [" / ".join(str(whole[category, style, o]) for style in STYLES) for o in orders]
        cases = max(total[category, style, orders[0]] for style in STYLES)
        lines.append(f"| {category} | {cases} | {' | '.join(cells)} |")
    return PAGE.format(table="\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th case; writes nothing")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time (default 4)")
    options = parser.parse_args(arguments)
    logs.configure("error")
    cases = [
        case
        for number, case in enumerate(bfcl_truth.load(CATEGORIES))
        if number % options.every == 0 and not case.flaw
    ]
    page = report(*measure(cases, options.jobs))
    print(page)
    if options.every == 1:
        write_section(DOCS / "programs.md", "bfcl-order", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
