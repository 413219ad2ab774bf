"""What the image's header promises, without building it: its variables, with the command that it runs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.command_line import ROOT, command_line

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def variables(state: Path) -> dict[str, str]:
    """The image's own, with a folder of the test in place of the volume."""
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
    ended = command_line(
        "doctor", "--engines", "monty", home=tmp_path, variables=variables(tmp_path)
    )
    assert (ended.code, ended.err) == (0, "")
    refused = command_line(home=tmp_path, variables=variables(tmp_path))
    assert refused.code == 2
    assert refused.err.startswith("host 0.0.0.0 is reachable from other machines: ")
