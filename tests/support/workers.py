"""The processes of a proxy with several workers: who is the keeper, and who takes what comes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import Process

_LISTENING = "0A"


class Workers:
    """Of the proxy at ``url``, whose master is ``process``. Linux only."""

    def __init__(self, process: Process, url: str) -> None:
        self._process = process
        self._port = int(url.rpartition(":")[2])

    def pids(self) -> list[int]:
        """Those that listen on the port, the keeper not among them."""
        socket = f"socket:[{self._inode()}]"
        return sorted(pid for pid in self._children() if socket in _open_files(pid))

    def are(self, number: int) -> bool:
        """Whether so many workers serve, and the keeper runs, which closes the port when it has been forked.

        One that still starts may have the store's lock, and must not be made to stand still.
        """
        pids = self.pids()
        return (
            len(self._children()) == number + 1 and len(pids) == number and self._serve() >= {*pids}
        )

    def keeper(self) -> int:
        (pid,) = set(self._children()) - set(self.pids())
        return pid

    @contextmanager
    def only(self, pid: int) -> Iterator[None]:
        """All other workers stand still: what connects in the block gets this one."""
        others = [other for other in self.pids() if other != pid]
        for other in others:
            os.kill(other, signal.SIGSTOP)
        try:
            self._process.wait_until(lambda: all(_state(other) == "T" for other in others))
            yield
        finally:
            for other in others:
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGCONT)

    def kill(self, pid: int) -> None:
        """``kill -9``, and wait for whoever takes its place."""
        workers = len(self.pids())
        os.kill(pid, signal.SIGKILL)
        self._process.wait_until(lambda: pid not in self._children() and self.are(workers))

    def _serve(self) -> set[int]:
        """Those that have said so; some may be no more."""
        told = re.findall(r"^.*a worker serves.*$", self._process.log.read_text(), re.MULTILINE)
        return {int(json.loads(line)["pid"]) for line in told}

    def _children(self) -> list[int]:
        tasks = Path(f"/proc/{self._process.group}/task/{self._process.group}/children")
        return [int(pid) for pid in tasks.read_text().split() if _state(int(pid)) not in "ZX"]

    def _inode(self) -> str:
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].partition(":")[2], 16) == self._port:
                return fields[9]
        raise AssertionError(f"nobody listens on {self._port}")


def _open_files(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(str(entry.readlink()))
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
