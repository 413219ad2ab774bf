"""Stops: an unnoticed end of a Docker container (a pidfd watches its first process), a signal to another
process, a container that outlives its `close`.

Does not stop: anything else; `sandbox.fences.docker` says how a container is made.

One container as a process of this machine, with the interface of `subprocess.Popen` that is needed. Knows
nothing of Jupyter. The Docker engine must run on this machine: a container is signalled through its pidfd
and its files are reached by /proc/PID/root. So the host shares nothing with it, not even a folder for
sockets, which a hostile program could fill with files or links.
"""

import contextlib
import io
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxUnavailable
from sandbox.fences import docker
from sandbox.fences.docker import DockerLimits

_LOCAL_FIX = (
    "run the proxy as root on the engine's own machine, or as the user of a rootless engine"
)
_PATIENCE = 10.0
"""Seconds that the engine may take to report a container's end."""
_UNKNOWN_CODE = 255
"""The exit code if the engine does not report one."""


class DockerContainer:
    """One running container.

    Its standard input closes when this object or this process ends. The command in it must read its
    standard input first, and must exit when it closes.
    """

    def __init__(self, image: str, command: Sequence[str], limits: DockerLimits) -> None:
        """Start it. Raises SandboxUnavailable."""
        self.out_of_memory = False
        """True if a process in it was killed for lack of memory; known after its end."""
        self._code: int | None = None
        self._removed = False
        self._start = time.time()
        with contextlib.ExitStack() as undo:
            self._client = undo.enter_context(docker.client())
            self._container = self._client.containers.create(
                image, list(command), **docker.container_options(limits, docker.user(self._client))
            )
            undo.callback(self._remove)
            self._stdin = undo.enter_context(contextlib.closing(self._attached("stdin")))
            self.stderr = io.BufferedReader(_Demultiplexed(self._attached("stdout", "stderr")))
            undo.callback(self.stderr.close)
            self._container.start()
            try:
                self.pid = self._state()["Pid"]
                self._pidfd = self._open_pidfd()
                undo.callback(os.close, self._pidfd)
                self._check_process()
            except (FileNotFoundError, ProcessLookupError) as error:
                raise self._start_error() from error
            self._release = undo.pop_all()

    def _attached(self, *streams: str) -> "_Connection":
        wanted = dict.fromkeys((*streams, "stream"), 1)
        return _Connection(self._client.api.attach_socket(self._container.id, wanted))

    def _state(self) -> dict[str, Any]:
        """Its state in the engine: `Running`, and `Pid`, which is 0 after its end."""
        try:
            self._container.reload()
        except docker.library().errors.NotFound:
            return {"Running": False, "Pid": 0}
        state: dict[str, Any] = self._container.attrs["State"]
        return state

    def _open_pidfd(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except OSError as error:  # EINVAL as well means that no process runs (pid 0, or a zombie)
            raise ProcessLookupError(self.pid) from error

    def _check_process(self) -> None:
        """Check that the process with this pid on this machine is the container's, and that its files can
        be read."""
        if self._container.id not in Path(f"/proc/{self.pid}/cgroup").read_text():
            raise ProcessLookupError(self.pid)
        try:
            Path(self.root, "proc").stat()
        except PermissionError as error:
            raise SandboxUnavailable(
                f"the files of a container cannot be read: {error}", _LOCAL_FIX
            ) from error

    def _start_error(self) -> SandboxUnavailable:
        """Why no such process runs here: the container has ended (the engine reports that soon), or runs
        elsewhere."""
        until = time.monotonic() + _PATIENCE
        while self._state()["Running"]:
            if time.monotonic() > until:
                return SandboxUnavailable("the Docker engine is not on this machine", _LOCAL_FIX)
            time.sleep(0.02)
        output = self.stderr.read().decode(errors="replace").strip().splitlines()
        words = (output or ["no message"])[-1]
        return SandboxUnavailable(f"a container ended during its start: {words}", docker.IMAGE_FIX)

    @property
    def root(self) -> str:
        """The container's root folder, as this machine sees it."""
        return f"/proc/{self.pid}/root"

    def write_stdin(self, line: bytes) -> None:
        self._stdin.socket.sendall(line)

    def watch(self) -> int:
        """A descriptor that becomes readable when the container ends. The caller closes it."""
        return os.dup(self._pidfd)

    def send_signal(self, signum: int) -> None:
        """Signal the command, without waiting. SIGKILL ends everything in the container."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self.wait() if _readable(self._pidfd, 0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns the exit code, or 128 + signal number; the engine then removes the
        container."""
        if self._code is None:
            if not _readable(self._pidfd, timeout):
                raise subprocess.TimeoutExpired("docker", timeout or 0)
            self._code = self._exit_code()
        return self._code

    def _exit_code(self) -> int:
        """Read the engine's events about this container since its start, until its removal."""
        code = _UNKNOWN_CODE
        with contextlib.suppress(OSError, ValueError, docker.library().errors.DockerException):
            for event in self._client.events(
                since=f"{self._start:.6f}",
                until=f"{time.time() + _PATIENCE:.6f}",
                filters={"container": self._container.id},
                decode=True,
            ):
                match event["Action"]:
                    case "oom":
                        self.out_of_memory = True
                    case "die":
                        code = int(event["Actor"]["Attributes"]["exitCode"])
                    case "destroy":
                        self._removed = True
                        break
        return code

    def _remove(self) -> None:
        if not self._removed:
            with contextlib.suppress(OSError, docker.library().errors.DockerException):
                self._container.remove(force=True, v=True)

    def close(self) -> None:
        """Release everything, and remove the container if it still exists."""
        self._release.close()


class _Connection:
    """One attachment to a container's streams. `close` closes the socket as well."""

    def __init__(self, attached: Any) -> None:
        # The SDK returns only a reader, and may keep its socket open after the reader is closed.
        self.reader = attached
        self.socket: socket.socket = getattr(attached, "_sock", attached)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.close()
        self.socket.close()


class _Demultiplexed(io.RawIOBase):
    """The output of a command without Docker's frame headers: 1 byte for the stream, 3 zero bytes, 4
    bytes length."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._remaining = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        try:
            while not self._remaining:
                header = self._exactly(8)
                if len(header) < 8:
                    return 0
                (self._remaining,) = struct.unpack(">4xI", header)
            read: bytes = self._connection.reader.read(min(self._remaining, len(into)))
        except OSError:  # timeout
            return 0
        self._remaining -= len(read)
        into[: len(read)] = read
        return len(read)

    def _exactly(self, size: int) -> bytes:
        read = b""
        while len(read) < size and (more := self._connection.reader.read(size - len(read))):
            read += more
        return read

    def close(self) -> None:
        if not self.closed:
            self._connection.close()
        super().close()


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
