"""Mark what a server starts, and sweep up what a killed one has left. Knows nothing of kernels.

A sandbox ends with its server by itself: bwrap asks the kernel for a signal at its parent's death,
and the program inside notices a closed pipe. Neither reaches a bwrap that was killed a few
milliseconds into its start, nor an empty control group, nor a temporary folder.

Does not sweep: what a server in another pid namespace left, since from here nobody can tell whether
that server is alive.
"""

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_MARK = re.compile(r"emulator-kernel-(\d+)-(\d+)-(\d+)")


def mark() -> str:
    """A name that says who started something: pid namespace, pid and start time of this process."""
    return _mark(os.getpid())


@cache
def _mark(pid: int) -> str:
    return f"emulator-kernel-{_namespace()}-{pid}-{_start_time(pid)}"


def is_abandoned(text: str) -> bool:
    """Whether `text` holds the mark of a server that is no more."""
    found = _MARK.search(text)
    if found is None:
        return False
    namespace, pid, start = map(int, found.groups())
    return namespace == _namespace() and _start_time(pid) != start


def sweep(groups: Iterable[Path] = ()) -> int:
    """End and remove all that dead servers left; `groups` are folders of control groups.

    Returns how many things went.
    """
    swept = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if command and is_abandoned(command):
                os.kill(int(process.name), signal.SIGKILL)
                swept += 1
    for group in groups:
        for left in group.glob("emulator-kernel-*"):
            if is_abandoned(left.name):
                # A group that still holds a dying process stays until the next start.
                with contextlib.suppress(OSError):
                    left.rmdir()
                    swept += 1
    for folder in Path(tempfile.gettempdir()).glob("emulator-kernel-*"):
        if is_abandoned(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process: with the pid, it names one process ever."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
