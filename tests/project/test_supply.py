"""What is installed is what was meant: versions and hashes are pinned, and the documents name real tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([a-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def locked() -> dict[str, str]:
    return dict(PINNED.findall((ROOT / "requirements.lock").read_text()))


def test_every_requirement_is_locked_in_a_version_that_fits() -> None:
    """After a change of requirements.txt: `make lock`. The image has some extras besides."""
    versions = locked()
    of_image = re.search(r"^IMAGE_EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert of_image, "the Makefile names the extras of the image"
    names = of_image[1].split()
    assert {"redis", "gateway", "shared"} <= set(names), "what several replicas need"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    for line in [*lines, *(line for name in names for line in extras[name])]:
        if line and not line.startswith("#"):
            wanted = Requirement(line)
            assert wanted.specifier.contains(versions[wanted.name]), line


def test_every_locked_version_has_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pieces = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert len(pieces) == len(PINNED.findall(text)) > 50
    assert [piece for piece in pieces if "--hash=sha256:" not in piece] == []
    assert "://" not in text


def test_the_image_installs_what_is_locked() -> None:
    assert "--require-hashes -r /tmp/requirements.lock" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/threat-model.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(tests/[a-z_/.]+)`", (ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).is_file()] == []
