"""What the image's header promises, without building it; `make test-image` does that (tests/image)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.image.image_engine import base_image
from tests.support.command_line import ROOT, command_line

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def variables(state: Path) -> dict[str, str]:
    """The image's own, with a folder of the test instead of the volume."""
    block = re.search(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    assert block is not None
    found = dict(pair.split("=", 1) for pair in re.findall(r"[A-Z_]+=\S+", block[1]))
    return {**found, "XDG_STATE_HOME": str(state)}


def test_the_image_keeps_its_state_in_the_volume_that_its_header_shows(tmp_path: Path) -> None:
    [volume] = re.findall(r"^#.* -v [\w-]+:(\S+) ", DOCKERFILE, re.MULTILINE)
    assert f"XDG_STATE_HOME={volume} " in DOCKERFILE
    assert f"--owner=emulator --mode=0700 {volume}" in DOCKERFILE


def test_the_image_runs_doctor_without_client_keys(tmp_path: Path) -> None:
    """It ended with "host 0.0.0.0 is reachable from other machines"."""
    ended = command_line("doctor", home=tmp_path, variables=variables(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    refused = command_line(home=tmp_path, variables=variables(tmp_path))
    assert refused.code == 2
    assert refused.err.startswith("host 0.0.0.0 is reachable from other machines: ")


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "sandbox/Dockerfile"])
def test_every_file_that_an_image_copies_exists_and_reaches_the_build(dockerfile: str) -> None:
    """The context is the whole checkout, but for what .dockerignore keeps out: all that it does not name."""
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert [name for name in let_in if not (ROOT / name).exists()] == []
    copied = re.findall(r"^COPY (?!--from)(\S+) ", (ROOT / dockerfile).read_text(), re.MULTILINE)
    assert copied
    for source in copied:
        assert source == "." or (ROOT / source).is_file(), source
        assert source == "." or source.split("/")[0] in let_in, source


def test_the_wheel_can_be_built_from_the_files_that_reach_the_build() -> None:
    """What pyproject.toml names: packages, prompts, the readme, the metadata hook and the licence."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = {*wheel["packages"], *wheel["force-include"], "README.md", "hatch_build.py"}
    named |= {*project["project"]["license-files"], "pyproject.toml", "requirements.lock"}
    assert named <= set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))


def test_both_images_start_from_the_same_base() -> None:
    assert base_image()[0] == "python"
