"""Write the tables of docs/compatibility.md from the results of the tests of clients, agents or frameworks.

    python -m tests.support.compatibility agents build/agents.xml

The results are JUnit's XML, as pytest writes it. A test records in it what its row needs (`record_property`):
that of a client the client, its packages and the features that the test covers; that of an agent or a
framework the environment, the requests of the program and the turns of the model. Needs nothing but the
standard library.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from tests.support.environments import ROOT, Environment

PAGE = ROOT / "docs" / "compatibility.md"
FEATURES = (
    *("single call", "parallel calls", "nested arguments", "result answered", "several tool turns"),
    *("prose", "streaming", "structured output", "code interpreter", "functions in code"),
    *("code over turns", "files"),
)
Table = list[tuple[str, ...]]
"""The titles, and the rows."""


@dataclass(frozen=True)
class Result:
    """Of one test, with what it recorded."""

    passed: bool
    recorded: dict[str, str]

    @property
    def requests(self) -> str:
        """Of the program to the proxy / of the proxy to the model."""
        recorded = self.recorded
        return f"{recorded['requests']} / {recorded['turns']}" if self.passed else "**no**"


def read_results(files: Iterable[str]) -> list[Result]:
    """Of the tests that ran and recorded something. A test that is expected to fail has failed."""
    found = []
    for case in (case for file in files for case in ET.parse(file).iter("testcase")):
        recorded = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        skipped = [one.get("type") != "pytest.xfail" for one in case.iter("skipped")]
        if recorded and not any(skipped):
            passed = not any(child.tag in ("failure", "error", "skipped") for child in case)
            found.append(Result(passed, recorded))
    return found


def yes_if_passed(results: Iterable[Result]) -> str:
    return "yes" if all(result.passed for result in results) else "**no**"


def titled(title: str, environment: Environment) -> str:
    pins = ", ".join(f"`{name}` {version}" for name, version in environment.pins.items())
    return f"{title} ({pins})"


def together(rows: Table) -> Table:
    """One row for all names with the same cells."""
    return [
        ("; ".join(name for name, *other in rows if other == cells), *cells)
        for cells in map(list, dict.fromkeys(tuple(cells) for _, *cells in rows))
    ]


def clients(results: Sequence[Result]) -> Table:
    rows = []
    named = {(result.recorded["client"], result.recorded["packages"]) for result in results}
    for name, packages in sorted(named, key=lambda one: one[0].lower()):
        own = [result for result in results if result.recorded["client"] == name]
        found = {
            feature: [one for one in own if feature in one.recorded["features"].split(", ")]
            for feature in FEATURES
        }
        failed = [name for name in FEATURES if not all(one.passed for one in found[name])]
        untested = (
            ", ".join(name for name in FEATURES if not found[name]) if any(found.values()) else ""
        )
        passed = sum(result.passed for result in own)
        rows.append(
            (f"{name} ({packages})", ", ".join(failed), untested, f"{passed} of {len(own)}")
        )
    return [("client", "fails", "untested", "tests passed"), *rows]


def agents(results: Sequence[Result]) -> Table:
    from tests.agents.agents import AGENTS, AIDER
    from tests.agents.obedient import STYLES

    found = defaultdict(list)
    for result in results:
        style = result.recorded.get("style", STYLES[0])
        found[result.recorded["environment"], style].append(result)
    rows = []
    for agent in (*AGENTS, AIDER):
        cells = [found.get((agent.environment.name, style), []) for style in STYLES]
        if any(cells):
            shown = (", ".join(result.requests for result in cell) for cell in cells)
            rows.append((titled(agent.title, agent.environment), *shown))
    return [("agent", *STYLES), *together(rows)]


def frameworks(results: Sequence[Result]) -> Table:
    from tests.frameworks.frameworks import FRAMEWORKS

    rows = []
    for framework in FRAMEWORKS:
        name = framework.environment.name
        own = [result for result in results if result.recorded["environment"] == name]
        if own:
            shown = ", ".join(result.requests for result in own)
            title = titled(framework.title, framework.environment)
            rows.append((title, yes_if_passed(own), shown))
    titles = ("framework", "several turns, results, structured output", "requests")
    return [titles, *together(rows)]


def main(group: str, *files: str) -> None:
    """Replace the table of the page that has the same first titles."""
    make = {"clients": clients, "agents": agents, "frameworks": frameworks}[group]
    titles, *rows = make(read_results(files))
    cells = [titles, ("---",) * len(titles), *rows]
    table = "".join(f"| {' | '.join(row)} |\n" for row in cells)
    same = rf"(?m)^\| {titles[0]} \| {titles[1]} \|.*\n(\|.*\n)*"
    page, count = re.subn(same, lambda _: table, PAGE.read_text())
    assert count == 1
    PAGE.write_text(page)


if __name__ == "__main__":
    main(*sys.argv[1:])
