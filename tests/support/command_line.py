"""The documented command as people type it: its exit code and what it printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 120.0


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a user who has set nothing but `variables`, with an empty home."""
    ours = ("EMULATOR_", "OPENAI_", "DEEPSEEK_", "XDG_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return clean | {"HOME": str(home)} | dict(variables or {})


def _app(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, str(ROOT / "app.py"), *arguments]


def _typed_in(home: Path, variables: Mapping[str, str] | None) -> dict[str, Any]:
    return {"cwd": home, "env": environment(home, variables), "stdin": subprocess.DEVNULL}


def command_line(*arguments: str, home: Path, variables: Mapping[str, str] | None = None) -> Ended:
    """`python app.py ...`, run in `home` until it ends."""
    run = subprocess.run(
        _app(arguments),
        **_typed_in(home, variables),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(run.returncode, run.stdout, run.stderr)


def own_process(program: str, *arguments: str, home: Path) -> Ended:
    """`python -c PROGRAM ...`: what the tests have imported already is none of it."""
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=environment(home, {"EMULATOR_CONFIG": "/dev/null", "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(run.returncode, run.stdout, run.stderr)


class Served:
    """A proxy that was started by `python app.py`; what it prints goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], printed: Path) -> None:
        self._process = process
        self._printed = printed

    @property
    def printed(self) -> str:
        """All that it has printed so far, on either output."""
        return self._printed.read_text()

    def wait_for(self, words: str) -> str:
        """What it has printed, once `words` are among it. Raises AssertionError if it ends without."""
        deadline = time.monotonic() + SECONDS
        while words not in self.printed:
            ended = self._process.poll() is not None
            assert not ended or words in self.printed, f"{words!r} not in:\n{self.printed}"
            assert time.monotonic() < deadline, f"{words!r} not in:\n{self.printed}"
            time.sleep(0.02)
        return self.printed

    def interrupt(self) -> None:
        """What Ctrl-C at a terminal does: every process of its group has the signal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def code(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(SECONDS)


@contextmanager
def served(
    *arguments: str, home: Path, variables: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """`python app.py ...`, run in `home`; killed at the end, if it still runs."""
    printed = home / "printed"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            _app(arguments),
            **_typed_in(home, variables),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Served(process, printed)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
