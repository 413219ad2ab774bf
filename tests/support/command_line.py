"""The documented command as people type it: its exit code and what it printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from tests.support.fork_server import SHOW_LEFT_OPEN
from tests.support.processes import ROOT, SECONDS, Process, start, without_settings


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
    env = environment(home, SHOW_LEFT_OPEN | dict(variables or {}))
    return _run([str(ROOT / "app.py"), *arguments], home, env)


def own_process(program: str, *arguments: str, home: Path) -> Ended:
    """`python -c PROGRAM ...`: a process without the imports of the tests."""
    variables = {"EMULATOR_CONFIG": os.devnull, "PYTHONPATH": str(ROOT)}
    return _run(["-c", program, *arguments], ROOT, environment(home, variables))


def _run(arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> Ended:
    with TemporaryFile() as out, TemporaryFile() as err:
        process = start([sys.executable, *arguments], folder, env, out, err)
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        printed = []
        for stream in (out, err):
            stream.seek(0)
            printed.append(stream.read().decode())
    return Ended(code, *printed)


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
