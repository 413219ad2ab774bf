"""A kernel of this machine that another process has started: how it is found, watched and ended.

Stops: an address of another machine or another start of the process; a socket that is none, or that a link
leads to: what a program has put in a socket's place is at most another socket of its own sandbox, from which
only messages are read, as from the kernel itself.

Does not stop: a forged address. Whoever stores it must recognize its own (`emulator.interpreter`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxDied

_END_SECONDS = 2
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


CHANNELS = {
    name: number for number, name in enumerate(("shell", "iopub", "stdin", "hb", "control"), 1)
}
"""Channel -> the number at the end of its socket's name."""


def connection_info(sockets: str, key: str) -> Any:
    """A connection file's content, for sockets named ``sockets``-1 ... ``sockets``-5."""
    return {
        **{f"{channel}_port": number for channel, number in CHANNELS.items()},
        "transport": "ipc",
        "ip": sockets,
        "key": key,
        "signature_scheme": "hmac-sha256",
    }


def kernel_address(pid: int, kernel: int, sockets: str, key: str, session: str) -> dict[str, str]:
    """What `AttachedProcess` needs. ``pid``: whose end is the kernel's; ``sockets``: their path inside."""
    return {
        "machine": _machine(),
        "pid": str(pid),
        "started": _start_time(pid),
        "kernel": str(kernel),
        "sockets": sockets,
        "key": key,
        "session": session,
    }


class AttachedProcess:
    """The process of a kernel that another process has started."""

    def __init__(self, address: Mapping[str, str]) -> None:
        """Raises SandboxDied if it has ended."""
        pid = int(address["pid"])
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError as error:
            raise SandboxDied("the kernel has ended") from error
        self._pid = pid
        self._kernel = int(address["kernel"])
        self._address = address
        # The descriptor keeps its meaning, so a process that has the number now is recognized.
        if (address["machine"], address["started"]) != (_machine(), _start_time(pid)):
            os.close(self._pidfd)
            raise SandboxDied("the kernel has ended, or is on another machine")

    def connection(self, sockets: str) -> Any:
        """See `connection_info`."""
        return connection_info(sockets, self._address["key"])

    def address(self, session: str) -> dict[str, str]:
        return {**self._address, "session": session}

    def sockets(self, numbers: Sequence[int]) -> dict[int, int]:
        """Number -> descriptor of the socket's file, by which it can be connected to. The caller closes them.

        Raises SandboxDied.
        """
        opened: dict[int, int] = {}
        try:
            for number in numbers:
                opened[number] = self._socket(f"{self._address['sockets']}-{number}")
        except OSError as error:
            for descriptor in opened.values():
                os.close(descriptor)
            raise SandboxDied("the kernel's sockets are gone") from error
        return opened

    def _socket(self, path: str) -> int:
        folder = os.open(f"/proc/{self._pid}/root", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        for name in Path(path).parts[1:]:
            inner = os.open(name, _PATH, dir_fd=folder)
            os.close(folder)
            folder = inner
        if not stat.S_ISSOCK(os.fstat(folder).st_mode):
            os.close(folder)
            raise FileNotFoundError(path)
        return folder

    def watch(self) -> int:
        """A descriptor that is readable when the kernel has ended. The caller closes it."""
        return os.dup(self._pidfd)

    def is_running(self) -> bool:
        return not self._has_ended(0)

    def _has_ended(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def signal_now(self, signum: int) -> None:
        """As `IpcProvisioner.signal_now`: while the sandbox runs, both pids are its own."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid if signum == signal.SIGKILL else self._kernel, signum)
        if signum == signal.SIGKILL:
            self._has_ended(_END_SECONDS)

    def close(self) -> None:
        os.close(self._pidfd)


@cache
def _machine() -> str:
    """A name of this boot of this machine, and of the processes that this one sees."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _start_time(pid: int) -> str:
    """In ticks after the boot; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
