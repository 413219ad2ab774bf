"""One Docker container, watched as a process of this machine. Knows nothing of Jupyter.

Stops: a container's end going unnoticed (a pidfd on its first process), a signal reaching another
process than its own, a container outliving whoever closes it.

Does not stop: anything by itself; `sandbox.fences.docker` says what a container is made of.

The engine must run on this machine: a container is signalled through its pidfd and reached by
/proc/PID/root, so nothing of the host is shared with it, not even a folder for sockets, which a hostile
program could fill, or fill with links.
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
"""Seconds for the engine to tell of a container's end."""
_UNTOLD = 255
"""The exit code of a container whose engine does not tell."""


class DockerContainer:
    """One running container, with what is used of `subprocess.Popen`.

    Its standard input ends when this object is closed or this process ends; whatever runs in there
    is to end at that, and to begin with reading what it is told.
    """

    def __init__(self, host: str, image: str, command: Sequence[str], room: DockerLimits) -> None:
        """Start it. Raises SandboxUnavailable."""
        self.out_of_memory = False
        """Whether a process in it was killed for want of memory; known once it has ended."""
        self._code: int | None = None
        self._gone = False
        self._began = time.time()
        with contextlib.ExitStack() as undo:
            self._client = undo.enter_context(docker.client(host))
            self._container = self._client.containers.create(
                image, list(command), **docker.container_options(room, docker.user(self._client))
            )
            undo.callback(self._remove)
            self._stdin = undo.enter_context(contextlib.closing(self._attached("stdin")))
            self.stderr = io.BufferedReader(_Demultiplexed(self._attached("stdout", "stderr")))
            undo.callback(self.stderr.close)
            self._container.start()
            try:
                self.pid = self._state()["Pid"]
                self._pidfd = self._opened()
                undo.callback(os.close, self._pidfd)
                self._examine()
            except (FileNotFoundError, ProcessLookupError) as error:
                raise self._not_here() from error
            self._release = undo.pop_all()

    def _attached(self, *streams: str) -> "_Connection":
        wanted = dict.fromkeys((*streams, "stream"), 1)
        return _Connection(self._client.api.attach_socket(self._container.id, wanted))

    def _state(self) -> dict[str, Any]:
        """What the engine knows of it: `Running`, and `Pid`, which is 0 for what has ended."""
        try:
            self._container.reload()
        except docker.library().errors.NotFound:
            return {"Running": False, "Pid": 0}
        state: dict[str, Any] = self._container.attrs["State"]
        return state

    def _opened(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except (
            OSError
        ) as error:  # EINVAL, too, says that nothing runs: it has no number, or is a zombie
            raise ProcessLookupError(self.pid) from error

    def _examine(self) -> None:
        """Make sure that this machine's process of that number is the container's, and within reach."""
        if self._container.id not in Path(f"/proc/{self.pid}/cgroup").read_text():
            raise ProcessLookupError(self.pid)
        try:
            Path(self.root, "proc").stat()
        except PermissionError as error:
            raise SandboxUnavailable(
                f"a container cannot be looked into: {error}", _LOCAL_FIX
            ) from error

    def _not_here(self) -> SandboxUnavailable:
        """Why there is no such process here: it has ended, as its engine will know in a moment."""
        until = time.monotonic() + _PATIENCE
        while self._state()["Running"]:
            if time.monotonic() > until:
                return SandboxUnavailable("the Docker engine is not on this machine", _LOCAL_FIX)
            time.sleep(0.02)
        said = self.stderr.read().decode(errors="replace").strip().splitlines()
        words = (said or ["no message"])[-1]
        return SandboxUnavailable(f"a container ended at its start: {words}", docker.IMAGE_FIX)

    @property
    def root(self) -> str:
        """Where this machine sees the container's root folder."""
        return f"/proc/{self.pid}/root"

    def tell(self, line: bytes) -> None:
        """Write to its standard input."""
        self._stdin.socket.sendall(line)

    def watch(self) -> int:
        """A descriptor of the caller's that is readable once it has ended."""
        return os.dup(self._pidfd)

    def send_signal(self, signum: int) -> None:
        """Signal the command, without waiting; SIGKILL ends all that is in there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self.wait() if _readable(self._pidfd, 0) else None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or 128 and the signal; then the container is removed."""
        if self._code is None:
            if not _readable(self._pidfd, timeout):
                raise subprocess.TimeoutExpired("docker", timeout or 0)
            self._code = self._ending()
        return self._code

    def _ending(self) -> int:
        """Read what the engine told, or will tell, of this container since its start."""
        code = _UNTOLD
        with contextlib.suppress(OSError, ValueError, docker.library().errors.DockerException):
            for event in self._client.events(
                since=f"{self._began:.6f}",
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
                        self._gone = True
                        break
        return code

    def _remove(self) -> None:
        if not self._gone:
            with contextlib.suppress(OSError, docker.library().errors.DockerException):
                self._container.remove(force=True, v=True)

    def close(self) -> None:
        """Give all back; the container is removed if it is still there."""
        self._release.close()


class _Connection:
    """One attachment to a container's streams, really closed when it is closed."""

    def __init__(self, attached: Any) -> None:
        # The SDK offers only a reader, and keeps the socket beneath open for as long as it likes.
        self.reader = attached
        self.socket: socket.socket = getattr(attached, "_sock", attached)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.close()
        self.socket.close()


class _Demultiplexed(io.RawIOBase):
    """What a command says, out of Docker's frames: 1 byte names the stream, 3 are 0, 4 are a length."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._left = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        try:
            while not self._left:
                header = self._exactly(8)
                if len(header) < 8:
                    return 0
                (self._left,) = struct.unpack(">4xI", header)
            read: bytes = self._connection.reader.read(min(self._left, len(into)))
        except OSError:  # nothing more came in time
            return 0
        self._left -= len(read)
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
