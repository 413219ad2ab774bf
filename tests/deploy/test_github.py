"""What GitHub reads in .github/ is valid, and what runs there is pinned."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.release import notes

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = sorted({*GITHUB.glob("ISSUE_TEMPLATE/*.yml")} - {GITHUB / "ISSUE_TEMPLATE/config.yml"})
SCHEMAS = os.environ.get("SCHEMA_PROGRAMS", "")
needs_schemas = pytest.mark.skipif(not SCHEMAS, reason="make test-deploy brings the schemas")


def passes(*command: str | Path) -> None:
    done = subprocess.run([*command], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_schemas
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE/config.yml"]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_github_knows_every_key(schema: str, files: list[Path]) -> None:
    passes(f"{SCHEMAS}/check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


@needs_schemas
def test_no_workflow_can_be_made_to_run_what_is_not_ours() -> None:
    passes(f"{SCHEMAS}/zizmor", "--offline", "--quiet", "--min-severity", "medium", GITHUB)


@needs_schemas
def test_actionlint_finds_nothing() -> None:
    passes(f"{SCHEMAS}/actionlint", *WORKFLOWS)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_each_action_is_pinned_by_its_commit(workflow: Path) -> None:
    used = re.findall(r"uses: (.+)", workflow.read_text())
    pinned = re.compile(r"\./\.github/workflows/\w+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+")
    assert [each for each in used if not pinned.fullmatch(each)] == []


def test_each_image_is_pinned() -> None:
    files = [ROOT / "Dockerfile", ROOT / "sandbox/Dockerfile", *(ROOT / "deploy").rglob("*.yaml")]
    named = [
        name
        for file in files
        for name in re.findall(r"^(?:FROM|\s+image:) (\S+)", file.read_text(), re.MULTILINE)
        if name != "tool-use-api-emulator"  # built from this checkout
    ]
    pinned = re.compile(r".+@sha256:[0-9a-f]{64}|elyra/enterprise-gateway:\d+\.\d+\.\d+")
    assert len(named) == 8
    assert [name for name in named if not pinned.fullmatch(name)] == []


TESTING = re.compile(r"^(test[\w-]*|lint|docs|fuzz|soak|audit):.*## ", re.MULTILINE)


def test_each_target_that_tests_runs_whole_in_ci_or_each_night() -> None:
    """The search for vulnerable packages ran nowhere."""
    targets = TESTING.findall((ROOT / "Makefile").read_text())
    in_ci = (ROOT / ".ci/run").read_text()
    whole = {
        name
        for name in targets
        if re.search(rf"(lane|limited 40m).* {name}( |$)", in_ci, re.MULTILINE)
    }
    nightly = yaml.safe_load((GITHUB / "workflows/nightly.yml").read_text())["jobs"]["all"]
    matrix = nightly["strategy"]["matrix"]
    assert {*matrix["target"]} == {*targets} - whole
    assert {each["target"] for each in matrix["include"]} <= {*targets}


REPOSITORY = "https://git.example/owner/name"
CHANGELOG = """# Changelog

## [Unreleased]
{}
## [1.0.0] - 2026-11-24

### Added

- [All](docs/api.md)
"""


@pytest.mark.parametrize(
    ("tag", "version", "unreleased", "wrong"),
    [
        ("v1.0.0", "1.0.0", "", None),
        ("v1.0.0", "1.0.1", "", "the tag is v1.0.0, and emulator/__init__.py has 1.0.1"),
        ("1.0.0", "1.0.0", "", "the tag is 1.0.0, and"),
        ("v1.0.0", "1.0.0", "\n### Fixed\n", "changes below [Unreleased]"),
        ("v1.0.1", "1.0.1", "", "no notes below [1.0.1]"),
    ],
)
def test_a_release_has_the_tag_of_its_version_and_notes_of_all_changes(
    tag: str, version: str, unreleased: str, wrong: str | None
) -> None:
    """Changes below [Unreleased] were released without a word, and the notes' links led nowhere."""
    changelog = CHANGELOG.format(unreleased)
    if wrong is None:
        written = notes(tag, version, changelog, REPOSITORY)
        assert written == f"### Added\n\n- [All]({REPOSITORY}/blob/v1.0.0/docs/api.md)\n"
    else:
        with pytest.raises(SystemExit, match=re.escape(wrong)):
            notes(tag, version, changelog, REPOSITORY)
    assert "tests.support.release" in (GITHUB / "workflows/release.yml").read_text()


def test_a_misread_reply_comes_with_what_explains_it() -> None:
    form = (GITHUB / "ISSUE_TEMPLATE" / "misread_reply.yml").read_text()
    assert "tool-emulator explain tools.json --reply reply.txt" in form
