"""Run what is installed in environments of its own, one after another; tell the outcome in
docs/compatibility.md.

    python -m tests.support.runs agents             all of them, anew
    python -m tests.support.runs agents --resume    those that have no results of this version yet
    python -m tests.support.runs agents --table     none: only the table of the results that there are

Each run leaves its results (JUnit's XML) in its environment, so that an interrupted one can go on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.environments import NODE, ROOT, Environment, environments

PAGE = ROOT / "docs" / "compatibility.md"
ONLY = "ONLY"
"""The variable that names the environments whose tests run (separated by blanks); without it, all do."""


def is_wanted(environment: Environment) -> bool:
    only = os.environ.get(ONLY)
    return only is None or environment.name in only.split()


@dataclass(frozen=True)
class Outcome:
    """Of one test: its parameters, whether it passed, and the numbers that it recorded."""

    parameters: str
    passed: bool
    numbers: dict[str, int]


def results(environment: Environment) -> Path:
    return environment.folder / "results.xml"


def run(environment: Environment) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"tests/{environment.group}",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--junitxml={results(environment)}", "-o", "junit_family=xunit1"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, ONLY: environment.name}, check=False)


def read(environment: Environment) -> list[Outcome]:
    """Nothing where it was not installed, or not run."""
    if not (environment.installed and results(environment).exists()):
        return []
    found = []
    for case in ET.parse(results(environment)).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        numbers = {p.attrib["name"]: int(p.attrib["value"]) for p in case.iter("property")}
        parameters = re.findall(r"\[(.*)\]", case.attrib["name"])
        passed = case.find("failure") is None and case.find("error") is None
        found.append(Outcome("".join(parameters), passed, numbers))
    return found


def versions(environment: Environment) -> str:
    return ", ".join(f"`{name}` {version}" for name, version in environment.pins.items())


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [tuple(titles)]
    cells += [("---",) * len(cells[0]), *map(tuple, rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def cell(outcomes: Iterable[Outcome]) -> str:
    """Requests of the client / of the proxy to the model, of each test."""
    told = [
        f"{outcome.numbers['requests']} / {outcome.numbers['turns']}"
        if outcome.passed
        else "**no**"
        for outcome in outcomes
    ]
    return ", ".join(told)


def agents_section(found: dict[Environment, list[Outcome]]) -> str:
    from tests.agents.agents import AGENTS, AIDER
    from tests.agents.obedient import STYLES
    from tests.agents.tasks import TASKS

    rows = []
    for agent in (*AGENTS, AIDER):
        cells = defaultdict(list)
        for outcome in found.get(agent.environment, []):
            style = next(
                (style for style in STYLES if f"-{style}-" in outcome.parameters), STYLES[0]
            )
            cells[style].append(outcome)
        if cells:
            rows.append(
                [
                    f"{agent.title} ({versions(agent.environment)})",
                    *(cell(cells[style]) for style in STYLES),
                ]
            )
    tasks = ", ".join(task.name for task in TASKS)
    return (
        "Made by `make test-agents-all` from its results. Each agent is configured as in [agents.md](agents.md) and does three\n"
        f"tasks: *{tasks}*.\nThe scripted model reads tools, task and results in its prompt. Each cell, per task: requests of the agent to the\n"
        "proxy / of the proxy to the model (the former include requests without tools, such as for a title). aider calls no tools and does\n"
        "the last task only.\n\n"
    ) + table(("agent", *STYLES), rows)


def frameworks_section(found: dict[Environment, list[Outcome]]) -> str:
    from tests.frameworks.frameworks import FRAMEWORKS

    rows = [
        (
            f"{framework.title} ({versions(framework.environment)})",
            "yes" if all(outcome.passed for outcome in found[framework.environment]) else "**no**",
            cell(found[framework.environment]),
        )
        for framework in FRAMEWORKS
        if found.get(framework.environment)
    ]
    return (
        "Made by `make test-frameworks` from its results. Each framework asks two questions in one conversation; the model\n"
        "answers each with two tool calls, first call by call, then as a program. A third question wants a structured answer. The last column: requests of the framework to the proxy / of the proxy to the model.\n\n"
    ) + table(("framework", "several turns, results, structured output", "requests"), rows)


SECTIONS = {
    "agents": ("Coding agents", agents_section),
    "frameworks": ("More frameworks", frameworks_section),
}


def sections(page: str) -> dict[str, str]:
    """What stands under each heading of ``page`` that is made here, to be kept by who makes the rest."""
    titles = [title for title, _ in SECTIONS.values()]
    kept = {}
    for title in titles:
        found = re.search(rf"^## {title}\n.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        if found is not None:
            kept[title] = found[0].rstrip("\n") + "\n"
    return kept


def with_sections(page: str, kept: dict[str, str]) -> str:
    """``page`` with these sections at its end, in place of those that it has."""
    for section in sections(page).values():
        page = page.replace(section, "")
    return "\n".join(
        [
            page.rstrip("\n") + "\n",
            *(kept[title] for title, _ in SECTIONS.values() if title in kept),
        ]
    )


def main(group: str, *options: str) -> int:
    found = {}
    for environment in environments(group):
        if environment == NODE or not environment.installed:
            continue
        if not ("--table" in options or ("--resume" in options and read(environment))):
            run(environment)
        found[environment] = read(environment)
    title, write = SECTIONS[group]
    page = PAGE.read_text()
    PAGE.write_text(with_sections(page, sections(page) | {title: f"## {title}\n\n{write(found)}"}))
    failed = [e.name for e, outcomes in found.items() if not all(o.passed for o in outcomes)]
    if failed:
        print("failed:", *failed, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
