"""The documented command as people type it: its exit code and what it printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ROOT, SECONDS, Process, without_settings


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a user who has set nothing but `variables`, with an empty home."""
    clean = {n: value for n, value in without_settings().items() if not n.startswith("XDG_")}
    return clean | {"HOME": str(home)} | dict(variables or {})


def command_line(*arguments: str, home: Path, variables: Mapping[str, str] | None = None) -> Ended:
    """`python app.py ...`, run in `home` until it ends. A socket that it leaves open is a line in ``err``."""
    shows_warnings = ["-W", "default::ResourceWarning", str(ROOT / "app.py")]
    return _run([*shows_warnings, *arguments], home, environment(home, variables))


def own_process(program: str, *arguments: str, home: Path) -> Ended:
    """`python -c PROGRAM ...`: a process without the imports of the tests."""
    variables = {"EMULATOR_CONFIG": os.devnull, "PYTHONPATH": str(ROOT)}
    return _run(["-c", program, *arguments], ROOT, environment(home, variables))


def _run(arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> Ended:
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(run.returncode, run.stdout, run.stderr)


@contextmanager
def served(
    *arguments: str, home: Path, variables: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """`python app.py ...`, run in `home`; killed at the end, if it still runs."""
    command = [sys.executable, str(ROOT / "app.py"), *arguments]
    process = Process(command, home / "printed", environment(home, variables), home)
    try:
        yield process
    finally:
        process.kill()
