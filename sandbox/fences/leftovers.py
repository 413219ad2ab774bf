"""Stops: processes, control groups and temporary folders of a killed server from staying forever. Each
has a mark of its server in its name; the next server removes those whose server is dead. (Normally a
sandbox ends with its server: bwrap gets a signal when its parent dies, and the program inside notices a
closed pipe. Neither reaches a bwrap that was killed during its start, an empty control group, or a
temporary folder.)

Does not stop: leftovers of a server in another pid namespace, because from here it is unknown whether
that server is alive. Knows nothing of kernels.
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
    """The mark of this process: its pid namespace, pid and start time."""
    return _mark(os.getpid())


@cache
def _mark(pid: int) -> str:
    return f"emulator-kernel-{_namespace()}-{pid}-{_start_time(pid)}"


def is_abandoned(text: str) -> bool:
    """Return True if `text` has the mark of a server that is dead."""
    found = _MARK.search(text)
    if found is None:
        return False
    namespace, pid, start = map(int, found.groups())
    return namespace == _namespace() and _start_time(pid) != start


def sweep(groups: Iterable[Path] = ()) -> int:
    """Kill and remove the leftovers of dead servers; `groups` are folders with control groups. Returns
    the number."""
    swept = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if command and is_abandoned(command):
                os.kill(int(process.name), signal.SIGKILL)
                swept += 1
    for group in groups:
        for leftover in group.glob("emulator-kernel-*"):
            if is_abandoned(leftover.name):
                # A group with a dying process cannot be removed before the next start.
                with contextlib.suppress(OSError):
                    leftover.rmdir()
                    swept += 1
    for folder in Path(tempfile.gettempdir()).glob("emulator-kernel-*"):
        if is_abandoned(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; together with the pid it identifies one process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
