"""Real server processes for tests and benchmarks: the proxy as users start it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from tests.support.fork_server import ForkedProcess

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
"""The time within which everything awaited must happen."""
NEW_PROCESS = (sys.executable, "-X", "faulthandler", str(ROOT / "app.py"))
"""The command of a proxy that is no fork of the fork server."""
SETTINGS = ("EMULATOR_", "OPENAI_", "DEEPSEEK_")
"""Prefixes of the variables that configure the proxy."""


def wait_until(condition: Callable[[], object], reason: str = "it did not happen") -> None:
    """Raises AssertionError after a timeout."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, reason
        time.sleep(0.02)


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None, out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a process without input in a session of its own, so that a worker dies with its master alone."""
    program, script, *arguments = (*command, "")
    is_app = program == sys.executable and script in ("app.py", str(ROOT / "app.py"))
    if is_app and not any(word.startswith("--workers") for word in command):
        with Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno(), out.fileno(), err.fileno()]
            return ForkedProcess(arguments[:-1], os.environ if env is None else env, cwd, streams)
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


class Process:
    """A process in a session of its own, with all that it starts; ``log`` is the file for its output."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = start(command, cwd, env, output, output)

    @property
    def group(self) -> int:
        """The id of the session, which is also that of its leader."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Everything printed so far, on either output."""
        return self.log.read_text()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Raises AssertionError with the output if the process ends before, or after a timeout."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            ended = self._process.poll() is not None and not condition()
            assert not ended and time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def wait_for(self, text: str) -> str:
        """The output, once it contains ``text``. Raises as `wait_until` does."""
        self.wait_until(lambda: text in self.output)
        return self.output

    def interrupt(self) -> None:
        """What Ctrl-C at a terminal does: signal every process of the group."""
        os.killpg(self.group, signal.SIGINT)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def exit_code(self) -> int:
        """Wait for the end."""
        return self._process.wait(SECONDS)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole session, and wait for its leader."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, how)
        self.exit_code()


class RestartableServer(ABC):
    """A server that tests stop and start again; a context manager in which it runs."""

    stop_signal = signal.SIGTERM
    _process: Process | None = None

    @abstractmethod
    def launch(self) -> Process:
        """Start the process."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return True if it answers."""

    def start(self) -> None:
        """Does nothing if the server runs."""
        if self._process is None:
            self._process = self.launch()
            self._process.wait_until(self.is_ready)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill(self.stop_signal)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def without_settings() -> dict[str, str]:
    """This environment without the variables that configure the proxy."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}


def listens(port: int) -> bool:
    """Return True if a server accepts connections on this port of the loopback."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextmanager
def proxy(
    base_url: str,
    log: Path,
    *arguments: str,
    command: Sequence[str] = (sys.executable, "app.py"),
    cwd: Path = ROOT,
) -> Iterator[tuple[Process, str]]:
    """`python app.py --port ... --base-url ...`, and its URL; killed at the end, if it still runs."""
    port = free_port()
    options = ["--port", str(port), "--base-url", base_url]
    options += ["--files-dir", str(log.parent / "files")]
    env = without_settings() | {"EMULATOR_CONFIG": os.devnull}
    process = Process([*command, *options, *arguments], log, env, cwd)
    url = f"http://127.0.0.1:{port}"
    try:
        process.wait_until(lambda: answers(f"{url}/healthz"))
        yield process, url
    finally:
        process.kill()


def answers(url: str) -> bool:
    """Return True if a GET of ``url`` succeeds."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


def members(group: int) -> list[int]:
    """The processes of a process session, by the kernel's own table (proc(5), stat, field 6)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found
