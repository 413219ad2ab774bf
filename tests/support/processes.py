"""Real server processes for tests and benchmarks: the proxy as users start it, and a redis-server."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
REDIS_MISSING = "no redis-server on PATH: apt-get install redis-server"


class Process:
    """A process and all that it starts; ``log`` is the file that its output goes to."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            # A session of its own, so that a worker dies with its master and nothing else does.
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Raises AssertionError with the log if the process ends or is not ready in time."""
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            alive = self._process.poll() is None
            if not alive or time.monotonic() > deadline:
                raise AssertionError(f"it did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    @property
    def group(self) -> int:
        """The id of its session."""
        return self._process.pid

    def wait_until_gone(self, gone: Callable[[], bool]) -> None:
        """Raises AssertionError if that does not come in time."""
        deadline = time.monotonic() + START_SECONDS
        while not gone():
            assert time.monotonic() < deadline, "something was left behind"
            time.sleep(0.05)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole session, and wait for its leader."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
        self._process.wait(START_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


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
    options = ["--port", str(port), "--base-url", base_url, "--warm-kernels", "0"]
    options += ["--files-dir", str(log.parent / "files")]
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EMULATOR_", "OPENAI_", "DEEPSEEK_"))
    }
    env = clean | {"EMULATOR_CONFIG": os.devnull}
    process = Process([*command, *options, *arguments], log, env, cwd)
    url = f"http://127.0.0.1:{port}"
    try:
        process.wait_until(lambda: _answers(f"{url}/healthz"))
        yield process, url
    finally:
        process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


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


class RedisServer:
    """A redis-server on a socket in `folder`, to be stopped and started; on disk only if it `keeps`."""

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        self._folder = folder
        self._keeps = ["--appendonly", "yes" if keeps else "no", "--appendfsync", "always"]
        self._socket = folder / "redis.sock"
        self._process: Process | None = None
        self._databases = itertools.count(1)

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def database(self) -> str:
        """The URL of one that is empty yet."""
        return f"{self.url}?db={next(self._databases)}"

    def start(self) -> None:
        """Nothing happens if it runs."""
        if self._process is not None:
            return
        import redis

        command = [shutil.which("redis-server") or "redis-server"]
        command += ["--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "600"]
        command += ["--databases", "256", "--save", "", *self._keeps, "--dir", str(self._folder)]
        self._process = Process(command, self._folder / "redis.log")
        client = redis.Redis.from_url(self.url)

        def answers() -> bool:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.BusyLoadingError):
                return False

        self._process.wait_until(answers)
        client.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill(signal.SIGTERM)
            self._process = None


@contextmanager
def redis_server(folder: Path, *, keeps: bool = False) -> Iterator[RedisServer]:
    server = RedisServer(folder, keeps=keeps)
    server.start()
    try:
        yield server
    finally:
        server.stop()
