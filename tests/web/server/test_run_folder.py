"""The folder of a run of several workers, made by real processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

RUN = """
from emulator.shared.run_folder import run_folder
with run_folder() as folder:
    print(folder, flush=True)
    input()
"""


def begun(open_processes: ExitStack, parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run whose folder is in ``parent``; it ends when its input does."""
    process = open_processes.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", RUN],
            env={**os.environ, "TMPDIR": str(parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_run_removes_what_killed_runs_have_left_and_nothing_of_those_that_live(
    tmp_path: Path,
) -> None:
    with ExitStack() as open_processes:
        killed, left = begun(open_processes, tmp_path)
        killed.kill()
        killed.wait()
        _, living = begun(open_processes, tmp_path)
        linked = tmp_path / "emulator-run-link"
        linked.symlink_to(living)
        for folder in (left, living, linked):
            os.utime(folder, (0, 0), follow_symlinks=False)
        ended, own = begun(open_processes, tmp_path)
        assert not left.exists()
        assert living.exists()
        assert own.exists()
        assert linked.is_symlink()
        ended.communicate("\n")
        assert not own.exists()
