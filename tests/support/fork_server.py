"""Start `python app.py` as a fork of a process that has imported the proxy: the import is slow.

    tests ── a connection for each process ──►  fork server ── fork ──►  keeper ── fork ──►  app.py
          ◄── its id, then its exit status ─────────────────────────────┘

The keeper waits for the process and reports its end; `ForkedProcess` is used like `subprocess.Popen`. What
differs from a new process: the modules are loaded, and /proc has the fork server's command line. Tests of
the start itself, and of several workers (their metrics are configured before the import), start new ones.
"""

from __future__ import annotations

import array
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOW_LEFT_OPEN = {"PYTHONWARNINGS": "default::ResourceWarning"}
"""With these variables a process prints what it leaves open."""
_MAX_REQUEST = 1 << 20
_STREAMS = 3


class ForkedProcess:
    """A running `python app.py ARGUMENTS...`, in a session of its own."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> None:
        """``streams`` are the descriptors of its standard input, output and error."""
        self.args = arguments
        self._connection = _fork_server()
        request = {"arguments": [*map(str, arguments)], "env": dict(env), "cwd": str(cwd)}
        descriptors = array.array("i", streams).tobytes()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        self._connection.sendmsg([json.dumps(request).encode() + b"\n"], ancillary)
        self._reports = self._connection.makefile()
        self.pid = int(self._reports.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._read_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([*self.args], timeout or 0)
            self._read_status()
        assert self.returncode is not None
        return self.returncode

    def _read_status(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(self._reports.readline()))
        self._reports.close()
        self._connection.close()


def _fork_server() -> socket.socket:
    """A connection to the fork server of this process, which ends with it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(_address())
    return connection


@cache
def _address() -> str:
    address = f"\0tests-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()
    command = [sys.executable, "-m", "tests.support.fork_server", str(listener.fileno())]
    # Its input is never written: it ends when this process does.
    subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )
    listener.close()
    return address


# The fork server's process.


def _serve(listener: socket.socket) -> list[str]:
    """Fork for each connection. Returns, in the process that was asked for, its arguments."""
    import emulator.cli.commands
    import emulator.cli.serve
    import emulator.web.app
    import emulator.web.server.master  # noqa: F401

    gc.collect()
    gc.freeze()  # or the collector of each fork copies the pages of all modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need not be waited for
    while True:
        if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _keep(connection)
        connection.close()


def _keep(connection: socket.socket) -> list[str]:
    """Start the process and report its end. Returns in that process."""
    line, ancillary, _, _ = connection.recvmsg(_MAX_REQUEST, socket.CMSG_SPACE(_STREAMS * 4))
    while not line.endswith(b"\n"):
        line += connection.recv(_MAX_REQUEST)
    request = json.loads(line)
    streams = array.array("i", ancillary[0][2])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process:
        for descriptor in (*streams, 0, 1, 2):
            os.close(descriptor)
        connection.sendall(b"%d\n" % process)
        _, status = os.waitpid(process, 0)
        try:
            connection.sendall(b"%d\n" % status)
        finally:
            os._exit(0)
    connection.close()
    os.setsid()
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    arguments: list[str] = request["arguments"]
    return arguments


if __name__ == "__main__":
    import runpy
    import tempfile
    import time
    import warnings

    sys.argv = ["app.py", *_serve(socket.socket(fileno=int(sys.argv[1])))]
    sys.path[0] = str(ROOT)
    tempfile.tempdir = None  # what was read before the fork
    time.tzset()
    if SHOW_LEFT_OPEN.items() <= os.environ.items():
        warnings.simplefilter("default", ResourceWarning)
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
