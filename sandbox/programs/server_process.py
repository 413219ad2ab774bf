"""Start one program server and ask it for children. Knows nothing of limits on their number, or of messages.

A request is one byte and one descriptor, the child's socket; the answer is one byte and a pidfd of the
child. The host acts on no pid: it may name another process once its owner has been reaped, a pidfd may not.
"""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.engine import Limits
from sandbox.errors import SandboxBusy, SandboxUnavailable
from sandbox.programs.inside.filter import SOCKET
from sandbox.programs.inside.server import DONE, FAILED, PROBE, RUN

ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
"""All variables of the server: sets have the same order in each replay, and text is UTF-8."""

FIX = "run the container image (see docs/deploy.md), or let the model write plain calls"

_START_SECONDS = 60.0
_FORK_SECONDS = 10.0
_END_SECONDS = 10.0


class ServerDied(Exception):
    """The server has ended, or does not answer."""


@dataclass(frozen=True)
class Handle:
    """A child: its socket and its pidfd."""

    socket: socket.socket
    pidfd: int
    inherited: int = 0
    """Bytes of memory that it has from its server."""

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing if it has ended. Raises PermissionError if the host may not."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def memory(self) -> int:
        """Bytes of resident memory that it has more than its server; 0 if it has ended."""
        with contextlib.suppress(OSError, StopIteration, ValueError):
            facts = Path(f"/proc/self/fdinfo/{self.pidfd}").read_text().splitlines()
            pid = next(line.split()[1] for line in facts if line.startswith("Pid:"))
            return max(0, _anonymous(pid) - self.inherited)
        return 0

    def kill(self) -> None:
        """As `send_signal`."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the end of a child that was killed."""
        ended = select.poll()
        ended.register(self.pidfd, select.POLLIN)
        ended.poll(_END_SECONDS * 1000)

    def close(self) -> None:
        """Wait for the end of a child that was killed, and release the descriptors."""
        self.socket.close()
        self.wait()
        os.close(self.pidfd)


def serve_source(limits: Limits, more: str = "") -> str:
    """The Python source of a server. `more` are further arguments of `serve`, for tests."""
    folder = str(Path(__file__).resolve().parents[2])
    # Appended, so that nothing next to this package takes the place of a standard module.
    return (
        f"import sys; sys.path.append({folder!r}); from sandbox.programs.inside.server import serve; "
        f"serve(memory={limits.memory}, seconds={limits.seconds}{more})"
    )


def command(source: str) -> list[str]:
    """The command of a server: no site packages, no folder before the standard library."""
    return [sys.executable, "-S", "-P", "-X", "utf8", "-c", source]


Wrap = Callable[[Sequence[str]], list[str]]
"""Puts a command behind a further fence."""


class ServerProcess:
    """One server. Threads may share it."""

    def __init__(self, source: str, wrap: Wrap = list) -> None:
        """Start it and wait until it serves. Raises SandboxUnavailable."""
        self._lock = threading.Lock()
        self._memory = 0
        try:
            self._control, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as undo:
                undo.callback(self._control.close)
                self._process = _start(source, theirs.fileno(), wrap)
                undo.pop_all()
        except OSError as error:  # too many files or processes, or too little memory
            raise SandboxUnavailable(f"the program server does not start: {error}", FIX) from error
        try:
            self._control.settimeout(_START_SECONDS)
            word, reason = self._read_start()
        except BaseException:
            self.close()
            raise
        if word != DONE:
            self.close()
            raise SandboxUnavailable(f"the program server does not start: {reason}", FIX)
        with contextlib.suppress(OSError):  # it has ended
            self._memory = _anonymous(self.pid)

    def _read_start(self) -> tuple[bytes, str]:
        try:
            answer = self._control.recv(4096)
        except OSError as error:
            return b"", str(error)
        return answer[:1], answer[1:].decode(errors="replace") or "it ended"

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, *, probe: bool = False) -> Handle:
        """A new child. Raises ServerDied, SandboxBusy."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _no_process(str(error)) from error
        try:
            with theirs, self._lock:
                handle = self._request(PROBE if probe else RUN, theirs.fileno())
            ours.setblocking(False)
            return Handle(ours, handle, self._memory)
        except BaseException:
            ours.close()
            raise

    def _request(self, word: bytes, descriptor: int) -> int:
        try:
            self._control.settimeout(_FORK_SECONDS)
            socket.send_fds(self._control, [word], [descriptor])
            answer, handles, _, _ = socket.recv_fds(self._control, 1001, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise ServerDied(str(error)) from error
        if answer[:1] == FAILED:
            reason = answer[1:].decode(errors="replace")
            raise _no_process(reason)
        if not handles:
            raise ServerDied("it ended")
        return handles[0]

    def close(self) -> None:
        """End the server and wait for its end. Its children end with it."""
        self._control.close()
        try:
            self._process.wait(_END_SECONDS if self._process.returncode is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start(source: str, control: int, wrap: Wrap) -> subprocess.Popen[bytes]:
    """The process of a server, whose control socket becomes `SOCKET`. Raises OSError."""
    move = f"import os; os.dup2({control}, {SOCKET}); os.close({control}); "
    return subprocess.Popen(
        wrap(command((move if control != SOCKET else "") + source)),
        pass_fds=[control],
        env=ENVIRONMENT,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _anonymous(pid: int | str) -> int:
    """Bytes of resident memory of a process that are no file's. Raises OSError, ValueError."""
    _, resident, of_files, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return (resident - of_files) * resource.getpagesize()


def _no_process(reason: str) -> SandboxBusy:
    return SandboxBusy(f"no process can be started: {reason}", "try again in a moment")
