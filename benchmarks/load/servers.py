"""The servers that are compared, each a process tree of its own, and what they use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
LITELLM = ROOT / ".venv-litellm" / "bin" / "litellm"
FORGE = ROOT / ".venv-forge" / "bin" / "python"
THREADS = 1104
"""As many as the proxy has with its default settings, for the bare server too."""
_CPU_CLOCK = 2
_READY_SECONDS = 120.0


@dataclass
class Server:
    name: str
    base_url: str
    process: subprocess.Popen[bytes]
    ready_seconds: float
    """From its start until it answered."""

    def cpu(self) -> float:
        """Seconds that all its processes have used."""
        return cpu(self.process.pid)

    def memory(self) -> float:
        """MiB of resident memory of all its processes; pages that they share are shared out (PSS)."""
        kilobytes = 0
        for process in tree(self.process.pid):
            with suppress(OSError):
                for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        kilobytes += int(line.split()[1])
        return kilobytes / 1024

    def threads(self) -> int:
        return sum(len(list(Path(f"/proc/{one}/task").iterdir())) for one in tree(self.process.pid))


def cpu(root: int) -> float:
    """Seconds that the process and all below it have used, to the nanosecond; of ended ones to the tick."""
    used = 0.0
    for process in tree(root):
        with suppress(OSError, IndexError):
            used += own_cpu(process)
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
            used += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return used


def own_cpu(process: int) -> float:
    """Seconds that one process has used, to the nanosecond. Raises OSError if it has ended."""
    # clock_getcpuclockid(3): the clock of another process is made of its number.
    return time.clock_gettime((~process << 3) | _CPU_CLOCK)


def tree(root: int) -> list[int]:
    """The process and all that descend from it."""
    found = [root]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found


@contextmanager
def upstream() -> Iterator[str]:
    """The base URL of a scripted upstream."""
    command = [sys.executable, "-m", "benchmarks.load.upstream"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


@contextmanager
def proxy(base_url: str, *settings: str, checkout: Path = ROOT) -> Iterator[Server]:
    """The proxy of ``checkout``, with its default settings except ``settings``."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(checkout / "app.py"), "--port", str(port)]
        command += ["--base-url", base_url, "--api-key", "none"]
        command += ["--database", f"{folder}/programs.sqlite", "--files-dir", folder, *settings]
        url = f"http://127.0.0.1:{port}"
        with _started("proxy", f"{url}/v1", f"{url}/healthz", command) as server:
            yield server


@contextmanager
def bare(base_url: str) -> Iterator[Server]:
    """Flask and urllib3 under gunicorn with the proxy's settings."""

    def command(port: int) -> list[str]:
        return [
            sys.executable, "-m", "gunicorn", "benchmarks.load.bare:app", "-k", "gthread",
            "--workers", "1", "--threads", str(THREADS), "--keep-alive", "75", "--timeout", "120",
            "--worker-connections", str(4 * THREADS), "--bind", f"127.0.0.1:{port}",
            "--log-level", "warning",
        ]  # fmt: skip

    with started("bare", command, {"BARE_UPSTREAM": base_url}) as server:
        yield server


@contextmanager
def litellm(base_url: str) -> Iterator[Server]:
    """LiteLLM's proxy with one worker, as its documentation starts it, before any model of the upstream."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder, "config.yaml")
        configuration.write_text(
            'model_list:\n- model_name: "*"\n  litellm_params:\n    model: "openai/*"\n'
            f"    api_base: {base_url}\n    api_key: none\n"
            "litellm_settings:\n  telemetry: false\n"
        )
        command = [str(LITELLM), "--config", str(configuration), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--num_workers", "1"]
        url = f"http://127.0.0.1:{port}"
        # Its list of prices is fetched from GitHub at start, unless it is told to use its own; and it serves
        # without a key only if told so.
        environment = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        with _started(
            "litellm", f"{url}/v1", f"{url}/health/liveliness", command, environment
        ) as server:
            yield server


@contextmanager
def forge(base_url: str) -> Iterator[Server]:
    """Forge's proxy in front of an OpenAI-compatible server, otherwise with its defaults."""

    def command(port: int) -> list[str]:
        options = ["--backend", "openai", "--backend-url", base_url, "--port", str(port)]
        return [str(FORGE), "-m", "forge.proxy", *options]

    with started("forge", command, {}) as server:
        yield server


@contextmanager
def started(
    name: str, command: Callable[[int], list[str]], environment: Mapping[str, str]
) -> Iterator[Server]:
    """What the command of a port starts, with the API under ``/v1``; whatever it answers at ``/`` will do."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with _started(name, f"{url}/v1", f"{url}/", command(port), environment) as server:
        yield server


@contextmanager
def _started(
    name: str,
    base_url: str,
    health: str,
    command: list[str],
    environment: Mapping[str, str] = {},
) -> Iterator[Server]:
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            while not _answers(health):
                if process.poll() is not None or time.perf_counter() - began > _READY_SECONDS:
                    log.seek(0)
                    raise RuntimeError(f"{name} does not start: {log.read()[-2000:].decode()}")
                time.sleep(0.01)
            yield Server(name, base_url, process, time.perf_counter() - began)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except URLError as error:
        return hasattr(error, "code")  # any answer is one
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
