"""What the clients' tests found -> docs/compatibility.md: a table of client by feature, and notes.md.

A test file names its client (`CLIENT`) and the packages it drives (`PACKAGES`, as its environment's
requirements or node/package.json pin them); its tests name the feature that they stand for:

    @pytest.mark.feature("parallel calls")

A file that names no client has no row.

Each environment's run writes a JSON file (`--results`); `python -m tests.clients.compatibility A.json B.json`
joins them. Runs anywhere: it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.runs import sections, with_sections

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
NOTES = Path(__file__).parent / "notes.md"
# Folder of tests -> what its environment is made of.
REQUIREMENTS = {
    "openai_3": ROOT / "requirements-clients.txt",
    "openai_2": ROOT / "requirements-clients-old.txt",
}
NODE_REQUIREMENTS = ROOT / "tests" / "clients" / "node" / "package.json"

FEATURES = (
    "single call",
    "parallel calls",
    "nested arguments",
    "result answered",
    "several tool turns",
    "prose",
    "streaming",
    "structured output",
    "code interpreter",
    "functions in code",
    "code over turns",
    "files",
)
HEAD = """\
# Compatibility

Made by `make test-clients` from its results; do not edit. Each client runs unchanged against the proxy
(only its `base_url` is set), with a scripted model that answers in Python or prose. LangChain,
PydanticAI, the Agents SDK and openai-node run over Chat Completions and Responses; PydanticAI and
LangChain's standard tests also over Anthropic's Messages. Code runs over Responses, in real sandboxes.

**yes**: all tests of the feature pass. **no**: some fail. Empty: not available in the client, or tested
in another row.

"""


class Results:
    """A pytest plugin that counts, per client and feature, the tests that passed and all that ran."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._packages: dict[str, list[str]] = {}
        self._outcomes: dict[tuple[str, str], list[bool]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: Iterable[Any]) -> None:
        for item in items:
            if not hasattr(item.module, "CLIENT"):
                continue
            features = [mark.args[0] for mark in item.iter_markers("feature")]
            if unknown := set(features) - set(FEATURES):
                raise ValueError(f"{item.nodeid}: {unknown} is not in compatibility.FEATURES")
            pins = read_pins(REQUIREMENTS[item.path.parent.name])
            packages = [f"{name}{pins[name]}" for name in item.module.PACKAGES]
            self._packages[item.module.CLIENT] = packages
            item.user_properties.append(("client", item.module.CLIENT))
            item.user_properties.append(("features", features))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            return
        # A test's outcome is that of its call, but for a setup or teardown that fails.
        if report.when != "call" and report.passed:
            return
        properties = dict(report.user_properties)
        if "client" not in properties:
            return
        for feature in ("", *properties["features"]):
            self._outcomes[properties["client"], feature].append(report.passed)

    def pytest_sessionfinish(self) -> None:
        clients: dict[str, Any] = {
            name: {"packages": packages, "features": {}}
            for name, packages in self._packages.items()
        }
        for (client, feature), outcomes in self._outcomes.items():
            clients[client]["features"][feature] = [sum(outcomes), len(outcomes)]
        self._path.write_text(json.dumps(clients, indent=1, sort_keys=True))


def render(clients: Mapping[str, Any]) -> str:
    """The page. ``clients`` is what the results' files hold together."""
    titles = ("client", *FEATURES, "tests passed")
    rows = [titles, ("---",) * len(titles)]
    for name in sorted(clients, key=str.lower):
        counts = clients[name]["features"]
        packages = ", ".join(f"`{package}`" for package in clients[name]["packages"])
        passed, total = counts[""]
        cells = [_cell(counts.get(feature)) for feature in FEATURES]
        rows.append((f"{name} ({packages})", *cells, f"{passed} of {total}"))
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{HEAD}{table}\n{NOTES.read_text()}"


def _cell(count: tuple[int, int] | None) -> str:
    if count is None:
        return ""
    passed, total = count
    return "yes" if passed == total else "**no**"


@cache
def read_pins(requirements: Path) -> dict[str, str]:
    """Package -> the versions asked for: ``{"openai": "~=3.52", "npm:ai": "@^7.0.173"}``."""
    pins = {}
    for line in requirements.read_text().splitlines():
        if match := re.match(r"([\w.-]+)(?:\[.*?\])?\s*([~=<>!][^;#]*)", line):
            pins[match[1]] = match[2].strip()
    node = json.loads(NODE_REQUIREMENTS.read_text())["dependencies"]
    return pins | {f"npm:{name}": f"@{version}" for name, version in node.items()}


def main(results: Iterable[str]) -> None:
    clients: dict[str, Any] = {}
    for path in results:
        clients |= json.loads(Path(path).read_text())
    # The sections that others make (tests/support/runs.py) stay as they are.
    PAGE.write_text(with_sections(render(clients), sections(PAGE.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
