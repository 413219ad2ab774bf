"""A release has the tag of its version, and notes of all changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.release import notes

WORKFLOW = Path(__file__).parents[2] / ".github" / "workflows" / "release.yml"
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
    assert "tests.support.release" in WORKFLOW.read_text()
