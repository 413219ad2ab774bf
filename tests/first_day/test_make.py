"""`make run` and its like, with a python that only says what it was asked: nothing is installed or served."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import ROOT, environment

PYTHON = f"""\
#!/bin/sh
case "$*" in
    "-m pip install"*) echo "Collecting flask"; echo "  Downloading flask-3.1-py3-none-any.whl";;
    "-c "* | "app.py upstream"*) exec {sys.executable} "$@";;
    *) echo "started: $*";;
esac
"""
EMBEDDED = "No upstream is configured (docs/settings.md), so the proxy uses the embedded model."

OUTERMOST = {"MAKELEVEL": "0", "MAKEFLAGS": "", "ARGS": ""}  # also below `make test ARGS=...`

STARTED: list[tuple[list[str], dict[str, str], str]] = [
    (["run"], {}, "app.py --local-model"),
    (["run", "ARGS=--port 9000"], {}, "app.py --local-model --port 9000"),
    (["run", "PORT=8301"], {}, "app.py --local-model --port 8301"),
    (["run"], {"EMULATOR_PORT": "9000"}, "app.py --local-model"),
    (["run", "BASE_URL=http://h/v1"], {}, "app.py --base-url http://h/v1"),
    (["run", "ARGS=--base-url http://h/v1"], {}, "app.py --base-url http://h/v1"),
    (["run"], {"DEEPSEEK_API_KEY": "d"}, "app.py"),
    (["run"], {"OPENAI_BASE_URL": "http://h/v1"}, "app.py"),
    (["interpreter"], {}, "app.py --local-model --interpreter on"),
    (
        ["interpreter", "BASE_URL=http://h/v1", 'ARGS=--log-level "error"'],
        {},
        "app.py --base-url http://h/v1 --interpreter on --log-level error",
    ),
]


def make(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    python = home / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return subprocess.run(
        ["make", *arguments, f"VENV={home / 'venv'}"],
        cwd=ROOT,
        env=environment(home, OUTERMOST | variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("arguments", "variables", "started"), STARTED)
def test_the_embedded_model_is_used_only_where_nothing_is_configured_and_that_is_told(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], started: str
) -> None:
    """An exported EMULATOR_CONFIG or OPENAI_API_KEY used to be found by the Makefile in a way of its own."""
    ended = make(tmp_path, *arguments, **variables)
    assert ended.stdout.splitlines()[-1] == f"started: {started}", ended.stderr
    assert (EMBEDDED in ended.stderr) == ("--local-model" in started)


def test_an_install_tells_each_package_as_it_comes(tmp_path: Path) -> None:
    ended = make(tmp_path, "run", "BASE_URL=http://h/v1")
    assert ended.stdout.splitlines() == [
        "Installing -r requirements.txt",
        "  flask",
        "started: app.py --base-url http://h/v1",
    ], ended.stderr


def test_a_mistake_starts_nothing(tmp_path: Path) -> None:
    ended = make(tmp_path, "run", "ARGS=--prot 9000")
    assert ended.returncode != 0
    assert "started" not in ended.stdout
    assert "--prot: there is no such flag; did you mean --port?\n" in ended.stderr
